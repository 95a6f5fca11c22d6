//! The properties of a block that its entry holds besides its place and its granules: seven, of one
//! bit each.
//!
//! A property changes only by these transitions. They panic unless the property is as in *before*,
//! and the block has what the transition *needs*.
//!
//! | property | transition | when | needs | before | after |
//! | --- | --- | --- | --- | --- | --- |
//! | listed | [`list`](Entry::list) | the frame has become dirty, or could not be made clean | a dirty frame | no | yes |
//! | listed | [`unlist`](Entry::unlist) | the log or the store takes the frame, or a flush waits for that | - | yes | no |
//! | leaving | [`leave`](Entry::leave) | the policy has named the block as a victim, or the block only passes through memory | a frame | no, yes | yes |
//! | leaving | [`stay`](Entry::stay) | the block is used again, cannot leave, or leaves its frame | - | no, yes | no |
//! | append due | [`want_append`](Entry::want_append) | the log is to take the frame when the current transfer ends | a dirty frame and a transfer | no, yes | yes |
//! | append due | [`take_append`](Entry::take_append) | the log or the store takes the frame, or the frame is clean | - | no, yes | no |
//! | flush waits | [`begin_flush`](Entry::begin_flush) | the flush in progress has found the block dirty, and waits for it | a dirty frame | no | yes |
//! | flush waits | [`end_flush`](Entry::end_flush) | the block has been handed on, or cannot be | - | yes | no |
//! | destaged | [`note_destaged`](Entry::note_destaged) | the store has taken the record's dirty granules, and is not synced yet | an owed record | no | yes |
//! | destaged | [`end_destage`](Entry::end_destage) | the cleaning that has written the record ends | - | yes | no |
//! | unreadable | [`note_unreadable`](Entry::note_unreadable) | the dirty record could not be read: cleaning skips it | an owed record | no, yes | yes |
//! | unreadable | [`retry_unreadable`](Entry::retry_unreadable) | a cleaning of the record's region begins | - | yes | no |
//! | doubtful | [`doubt`](Entry::doubt) | the log has failed while it appended the block, or before a tombstone made the record void | a transfer | no, yes | yes |
//! | doubtful | [`trust`](Entry::trust) | all records of the block are void | - | no, yes | no |
//!
//! If the block has another record, or none, it is neither destaged nor unreadable
//! ([`forget_tries`](Entry::forget_tries)); nor if the store has all that the record owed.
//!
//! Between calls, the properties of an entry fit the rest of the entry ([`Entry::fault`]). Each
//! property requires what one of its rows says. The frame is `Absent`, `Clean` or `Dirty`; the
//! record is `Absent`, `Owed` to the store in whole or in part, or `Other`; the transfer is `None`,
//! of the kind `Destage`, or `Other`. An empty cell allows anything.
//!
//! | property | frame | record | transfer |
//! | --- | --- | --- | --- |
//! | listed | `Dirty` | | |
//! | not listed | `Absent`, `Clean` | | |
//! | not listed | `Dirty` | | `Destage`, `Other` |
//! | leaving | `Clean`, `Dirty` | | `Destage`, `Other` |
//! | append due | `Dirty` | | `Other` |
//! | flush waits | `Dirty` | | `Destage` |
//! | append due and flush waits | `Dirty` | | `Other` |
//! | destaged | | `Owed` | |
//! | unreadable | | `Owed` | |

use super::Entry;

const LEAVING: u8 = 1;
const APPEND_DUE: u8 = 2;
const FLUSH_WAITS: u8 = 4;
const LISTED: u8 = 8;
const DOUBTFUL: u8 = 16;
const DESTAGED: u8 = 32;
const UNREADABLE: u8 = 64;

impl Entry {
    #[inline]
    fn has(&self, property: u8) -> bool {
        self.flags() & property != 0
    }

    #[inline]
    fn set(&mut self, property: u8) {
        self.set_flags(self.flags() | property);
    }

    #[inline]
    fn clear(&mut self, property: u8) {
        self.set_flags(self.flags() & !property);
    }

    // ---- the dirty list ----

    /// Whether the frame is in the dirty list of its volume.
    #[inline]
    pub fn is_listed(&self) -> bool {
        self.has(LISTED)
    }

    /// Notes that the frame enters the dirty list.
    #[inline]
    pub(in crate::shard::blocks) fn list(&mut self) {
        let may = self.has_dirty_frame() && !self.is_listed();
        assert!(may, "a clean frame, or one already in the dirty list, enters it");
        self.set(LISTED);
    }

    /// Notes that the frame leaves the dirty list.
    #[inline]
    pub(in crate::shard::blocks) fn unlist(&mut self) {
        assert!(self.is_listed(), "a frame that is not in the dirty list leaves it");
        self.clear(LISTED);
    }

    // ---- out of memory ----

    /// Whether the block has left the replacement list and releases its frame when nothing is in
    /// flight.
    #[inline]
    pub fn is_leaving(&self) -> bool {
        self.has(LEAVING)
    }

    /// Notes that the block begins to leave memory.
    #[inline]
    pub(in crate::shard::blocks) fn leave(&mut self) {
        assert!(self.frame().is_some(), "a block that is not in memory leaves it");
        self.set(LEAVING);
    }

    /// Notes that the block no longer leaves memory.
    #[inline]
    pub(in crate::shard::blocks) fn stay(&mut self) {
        self.clear(LEAVING);
    }

    // ---- the next append, and flushes ----

    /// Whether the log is to take the frame when the current transfer ends.
    #[inline]
    pub fn is_append_due(&self) -> bool {
        self.has(APPEND_DUE)
    }

    /// Notes that the log is to take the frame when the current transfer ends.
    pub fn want_append(&mut self) {
        let may = self.has_dirty_frame() && self.transfer().is_some();
        assert!(may, "an append has nothing to take, or need not wait");
        self.set(APPEND_DUE);
    }

    /// Notes that no append is due: the log or the store takes the frame, or the frame is clean.
    #[inline]
    pub fn take_append(&mut self) {
        self.clear(APPEND_DUE);
    }

    /// Whether the flush in progress waits for this block.
    #[inline]
    pub fn is_flushing(&self) -> bool {
        self.has(FLUSH_WAITS)
    }

    /// Notes that the flush in progress waits for this block, which is dirty.
    pub fn begin_flush(&mut self) {
        let may = self.has_dirty_frame() && !self.is_flushing();
        assert!(may, "a flush waits for a clean block, or twice for a block");
        self.set(FLUSH_WAITS);
    }

    /// Notes that the block has been handed on for the flush, or could not be.
    pub fn end_flush(&mut self) {
        assert!(self.is_flushing(), "no flush waits for the block");
        self.clear(FLUSH_WAITS);
    }

    // ---- the record ----

    /// Whether the store has the record's dirty granules, but is not synced yet.
    #[inline]
    pub fn is_destaged(&self) -> bool {
        self.has(DESTAGED)
    }

    /// Whether the record, which is dirty, could not be read. Cleaning skips it until its region is
    /// requested again.
    #[inline]
    pub fn is_unreadable(&self) -> bool {
        self.has(UNREADABLE)
    }

    /// Whether the record need not or cannot be destaged for now: it has been written, or could not
    /// be read.
    #[inline]
    pub fn is_tried(&self) -> bool {
        self.has(DESTAGED | UNREADABLE)
    }

    /// Notes that the store has taken the record's dirty granules.
    pub fn note_destaged(&mut self) {
        let may = self.owes_record() && !self.is_destaged();
        assert!(may, "a record that is not owed is destaged, or a record is destaged twice");
        self.set(DESTAGED);
    }

    /// Notes that the cleaning that has written the record ends.
    pub fn end_destage(&mut self) {
        assert!(self.is_destaged(), "a destage ends for a record that was not destaged");
        self.clear(DESTAGED);
    }

    /// Notes that the record could not be read.
    pub fn note_unreadable(&mut self) {
        assert!(self.owes_record(), "a record that is not owed is found unreadable");
        self.set(UNREADABLE);
    }

    /// Notes that a cleaning of the record's region begins, which reads the record again.
    pub fn retry_unreadable(&mut self) {
        assert!(self.is_unreadable(), "a record that was not unreadable is tried again");
        self.clear(UNREADABLE);
    }

    /// Clears *destaged* and *unreadable*: the block has another record, or none, or the store has
    /// all that the record owed.
    #[inline]
    pub(in crate::shard::blocks) fn forget_tries(&mut self) {
        self.clear(DESTAGED | UNREADABLE);
    }

    // ---- records that the entry does not name ----

    /// Whether a start may find a record of the block that the entry does not name: the log has
    /// failed, either while it appended the block, or before a tombstone made the record void. The
    /// block must not be written directly until its records are void
    /// ([`FlashTier::forget_record`](crate::shard::flash_tier::FlashTier::forget_record)). (While
    /// the log is making a record void, the block has a transfer, `TransferKind::Activate`, and no
    /// record.)
    #[inline]
    pub fn is_doubtful(&self) -> bool {
        self.has(DOUBTFUL)
    }

    /// Notes that the log has failed during the transfer, and may have a record of the block that
    /// the entry does not name.
    pub fn doubt(&mut self) {
        assert!(self.transfer().is_some(), "the log knows nothing of the block");
        self.set(DOUBTFUL);
    }

    /// Notes that all records of the block are void.
    pub fn trust(&mut self) {
        self.clear(DOUBTFUL);
    }

    // ---- between calls ----

    /// Returns what is wrong with the entry, if it must not be like this between calls; see the
    /// module documentation. `destages`: its transfer is a
    /// [`Destage`](crate::shard::transfer::TransferKind::Destage).
    pub fn fault(&self, destages: bool) -> Option<&'static str> {
        let busy = self.transfer().is_some();
        let dirty = self.has_dirty_frame();
        let listed_right = if self.is_listed() { dirty } else { !dirty || busy };
        let pends_right = match (self.is_append_due(), self.is_flushing()) {
            (false, false) => true,
            (false, true) => dirty && destages,
            (true, _) => dirty && busy && !destages,
        };
        if !listed_right {
            Some("a block is missing from the dirty list, or wrongly in it")
        } else if self.is_leaving() && !(self.frame().is_some() && busy) {
            Some("a leaving block has nothing to wait for")
        } else if !pends_right {
            Some("an append or a flush waits for nothing")
        } else if self.is_tried() && !self.owes_record() {
            Some("a record that is not owed was tried")
        } else {
            None
        }
    }

    fn has_dirty_frame(&self) -> bool {
        self.frame().is_some() && !self.dirty().is_empty()
    }
    fn owes_record(&self) -> bool {
        self.position().is_some() && !self.owed().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use forebay_block::Volume;
    use forebay_flash::{BlockKey, Granules, Position};

    use super::*;
    use crate::shard::frames::Frame;
    use crate::slab::{Key, TransferIndex};

    const FRAMES: [&str; 3] = ["Absent", "Clean", "Dirty"];
    const RECORDS: [&str; 3] = ["Absent", "Owed", "Other"];
    const TRANSFERS: [&str; 3] = ["None", "Destage", "Other"];
    const PROPERTIES: [(&str, u8); 7] = [
        ("listed", LISTED),
        ("leaving", LEAVING),
        ("append due", APPEND_DUE),
        ("flush waits", FLUSH_WAITS),
        ("destaged", DESTAGED),
        ("unreadable", UNREADABLE),
        ("doubtful", DOUBTFUL),
    ];

    const ALL: u8 = (1 << PROPERTIES.len()) - 1;

    /// An entry that the three words describe, with these properties.
    fn entry([frame, record, transfer]: [&str; 3], flags: u8) -> Entry {
        let mut e = Entry::new(BlockKey::new(Volume(1), 7));
        if frame != "Absent" {
            e.set_frame(Some(Frame(3)));
            e.valid = Granules(3);
            e.dirty = Granules(u16::from(frame == "Dirty"));
        }
        if record != "Absent" {
            e.set_position(Some(Position(5)));
            e.flash_valid = Granules(3);
            e.flash_dirty = Granules(u16::from(record == "Owed"));
        }
        if transfer != "None" {
            e.set_transfer(Some(TransferIndex::new(2)));
        }
        e.set_flags(flags);
        e
    }

    /// All combinations of frames, records and transfers.
    fn all_words() -> impl Iterator<Item = [&'static str; 3]> {
        FRAMES.into_iter().flat_map(|frame| {
            RECORDS.into_iter().flat_map(move |record| {
                TRANSFERS.into_iter().map(move |transfer| [frame, record, transfer])
            })
        })
    }

    /// The rows of the table with this heading in the module's documentation.
    fn table(heading: &str) -> Vec<Vec<&'static str>> {
        let lines = include_str!("flags.rs").lines();
        let rows = lines.skip_while(|line| !line.starts_with(heading)).skip(2);
        let rows = rows.map_while(|line| line.strip_prefix("//! |")?.strip_suffix('|'));
        rows.map(|row| row.split('|').map(str::trim).collect()).collect()
    }

    /// Goal: between calls, an entry is sound exactly if the table says so. Method: all
    /// combinations of frame, record, transfer and properties.
    #[test]
    fn an_entry_is_sound_between_calls_exactly_if_the_table_says_so() {
        let rows = table("//! | property | frame |");
        let fits = |words: [&str; 3], property: &str| {
            let mut rows = rows.iter().filter(|row| row[0] == property).peekable();
            let named = rows.peek().is_some();
            !named
                || rows.any(|row| {
                    let cells = row[1..].iter().zip(words);
                    cells.into_iter().all(|(cell, word)| {
                        cell.is_empty() || cell.split(", ").any(|c| c.trim_matches('`') == word)
                    })
                })
        };
        let mut sound = 0;
        for words in all_words() {
            for flags in 0..=ALL {
                let mut said: Vec<&str> = PROPERTIES
                    .into_iter()
                    .filter_map(|(name, flag)| (flags & flag != 0).then_some(name))
                    .collect();
                if flags & LISTED == 0 {
                    said.push("not listed");
                }
                if flags & (APPEND_DUE | FLUSH_WAITS) == APPEND_DUE | FLUSH_WAITS {
                    said.retain(|&name| name != "append due" && name != "flush waits");
                    said.push("append due and flush waits");
                }
                let expected = said.iter().all(|name| fits(words, name));
                let fault = entry(words, flags).fault(words[2] == "Destage");
                assert_eq!(fault.is_none(), expected, "{words:?} {said:?}: {fault:?}");
                sound += u32::from(expected);
            }
        }
        assert_eq!(sound, 348, "the table was read");
    }

    type Transition = fn(&mut Entry);

    /// The transitions, by the names that the table has for them.
    const TRANSITIONS: [(&str, Transition); 14] = [
        ("list", Entry::list),
        ("unlist", Entry::unlist),
        ("leave", Entry::leave),
        ("stay", Entry::stay),
        ("want_append", Entry::want_append),
        ("take_append", Entry::take_append),
        ("begin_flush", Entry::begin_flush),
        ("end_flush", Entry::end_flush),
        ("note_destaged", Entry::note_destaged),
        ("end_destage", Entry::end_destage),
        ("note_unreadable", Entry::note_unreadable),
        ("retry_unreadable", Entry::retry_unreadable),
        ("doubt", Entry::doubt),
        ("trust", Entry::trust),
    ];

    /// Goal: the table of transitions is correct. Method: each transition of each combination of
    /// frame, record, transfer and its property; the other properties must not change.
    #[test]
    fn a_property_changes_only_as_the_table_says() {
        let rows = table("//! | property | transition |");
        assert_eq!(rows.len(), TRANSITIONS.len());
        for row in rows {
            let [property, transition, _, needs, before, after] = row[..] else {
                panic!("a row of six cells: {row:?}")
            };
            let name = transition.split('`').nth(1).expect("a name in backticks");
            let (_, call) = *TRANSITIONS.iter().find(|(n, _)| *n == name).expect("a transition");
            let (_, flag) = *PROPERTIES.iter().find(|(n, _)| *n == property).expect("a property");
            let word = |set| if set { "yes" } else { "no" };
            for words in all_words() {
                let [frame, record, transfer] = words;
                let has = match needs {
                    "-" => true,
                    "a frame" => frame != "Absent",
                    "a dirty frame" => frame == "Dirty",
                    "a dirty frame and a transfer" => frame == "Dirty" && transfer != "None",
                    "an owed record" => record == "Owed",
                    "a transfer" => transfer != "None",
                    other => panic!("{other} is needed"),
                };
                for flags in [0, flag, ALL & !flag, ALL] {
                    let mut e = entry(words, flags);
                    let may = has && before.split(", ").any(|b| b == word(flags & flag != 0));
                    let done = catch_unwind(AssertUnwindSafe(|| call(&mut e)));
                    assert_eq!(done.is_ok(), may, "{name} of {words:?} with {flags:#b}");
                    let expected = match may {
                        true if after == "yes" => flags | flag,
                        true => flags & !flag,
                        false => flags,
                    };
                    assert_eq!(e.flags(), expected, "{name} of {words:?} with {flags:#b}");
                    assert_eq!(e.transfer().is_some(), transfer != "None");
                }
            }
        }
    }
}
