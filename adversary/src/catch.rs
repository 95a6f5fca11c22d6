//! Turns panics of the code under test into failures of a run.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

static HOOK: Once = Once::new();

/// Runs `f`. A panic becomes an error with the message and the location of the panic. Meanwhile,
/// panics on this thread print nothing; panics on other threads print as usual.
///
/// # Errors
/// Returns the error of `f`, or the description of the panic.
pub fn catch<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if CATCHING.get() {
                SAID.set(info.to_string().replace('\n', " "));
            } else {
                before(info);
            }
        }));
    });
    CATCHING.set(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    CATCHING.set(false);
    result.unwrap_or_else(|_| Err(SAID.take()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_that_says_where() {
        let e = catch(|| -> Result<(), String> { panic!("of the test") }).unwrap_err();
        assert!(e.contains("of the test") && e.contains("catch.rs"), "{e}");
        assert_eq!(catch(|| Ok(1)), Ok(1));
    }
}
