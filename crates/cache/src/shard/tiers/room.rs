//! Whether pieces that wait for room may find some.

/// Failed destages in a row after which a request that needs room fails.
const DESTAGES_FAILED_MAX: u32 = 3;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Something became free since pieces that wait for room were last tried.
    new: bool,
    /// Consecutive failed destages, without a flash tier.
    destages_failed: u32,
}

impl Room {
    /// Something has become free: pieces that wait for room may try again.
    #[inline]
    pub fn note(&mut self) {
        self.new = true;
    }

    /// Whether something has become free since the last [`take`](Self::take).
    #[inline]
    pub fn is_new(&self) -> bool {
        self.new
    }

    /// Pieces that wait for room are tried, or what became free is no room for them. Returns whether something had
    /// become free.
    #[inline]
    pub fn take(&mut self) -> bool {
        core::mem::take(&mut self.new)
    }

    /// A destage from DRAM has ended, successfully or not.
    pub fn note_destage(&mut self, good: bool) {
        self.destages_failed = if good { 0 } else { self.destages_failed + 1 };
    }

    /// Pieces that waited for room have failed because destages fail: the next piece tries again.
    pub fn forget_failed_destages(&mut self) {
        self.destages_failed = 0;
    }

    /// Whether destages have failed too often for a piece to wait for the next.
    pub fn is_hopeless(&self) -> bool {
        self.destages_failed >= DESTAGES_FAILED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fail_after_three_failed_destages_in_a_row_and_the_next_piece_tries_again() {
        let mut room = Room::default();
        for good in [false, false, true, false, false] {
            room.note_destage(good);
            assert!(!room.is_hopeless());
        }
        room.note_destage(false);
        assert!(room.is_hopeless());
        room.forget_failed_destages();
        assert!(!room.is_hopeless());
    }
}
