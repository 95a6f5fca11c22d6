//! How long calls to the cache take.

/// Makes a call; if `calls` is set, appends the time that it took, in nanoseconds.
#[inline]
pub(crate) fn timed<T>(calls: &mut Option<Vec<u32>>, call: impl FnOnce() -> T) -> T {
    let Some(calls) = calls else { return call() };
    let begun = std::time::Instant::now();
    let result = call();
    calls.push(u32::try_from(begun.elapsed().as_nanos()).unwrap_or(u32::MAX));
    result
}
