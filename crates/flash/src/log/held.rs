//! Direct writes although stores cannot be synced: see `activity.rs`.

use super::Log;
use crate::key::BlockKey;
use crate::types::Event;
use forebay_block::Volume;

impl Log {
    /// The volume's store can make nothing durable any more, because a sync of it has failed: its
    /// extents stay marked until the next start, and it gets no others.
    pub fn hold_extents(&mut self, volume: Volume) {
        self.activity.hold(volume);
        self.pump();
    }

    /// Voids the records of one block, after [`Event::Unmarked`]: `RecordVoid` follows once that is
    /// durable. The owner of the index must have forgotten the record, which must be clean, and must
    /// not append another before the event.
    pub fn void_record(&mut self, key: BlockKey, ticket: u64) {
        if let Some(error) = self.refusal() {
            return self.io.tell(Event::RecordVoid { ticket, result: Err(error) });
        }
        self.queue.append_tombstone(key, &self.io);
        self.queue.close_through = self.queue.last_serial;
        self.activity.await_void(self.queue.last_serial, ticket);
        self.pump();
    }
}
