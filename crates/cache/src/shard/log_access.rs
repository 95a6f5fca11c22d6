//! How the parts of a shard reach the log.

use forebay_flash::{Log, Position};

/// The log, during one call of a shard; there is one if the cache has flash.
///
/// Code that serves caches with and without flash asks whether there is a log. Code that is only
/// reached with a log works on a record, and passes its position as proof: only a log gives
/// positions.
pub(crate) struct LogAccess<'a>(Option<&'a mut Log>);

impl<'a> LogAccess<'a> {
    pub fn new(log: Option<&'a mut Log>) -> LogAccess<'a> {
        LogAccess(log)
    }

    /// The log, if there is one.
    #[inline]
    pub fn get(&self) -> Option<&Log> {
        self.0.as_deref()
    }

    /// The log, if there is one, to be changed.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut Log> {
        self.0.as_deref_mut()
    }

    /// The log that returned this position.
    #[inline]
    pub fn of(&self, _: Position) -> &Log {
        self.get().expect("nothing but a log gives positions")
    }

    /// The log that returned this position, to be changed.
    #[inline]
    pub fn of_mut(&mut self, _: Position) -> &mut Log {
        self.get_mut().expect("nothing but a log gives positions")
    }
}
