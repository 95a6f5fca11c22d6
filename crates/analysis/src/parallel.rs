//! Runs the same work on many items, on all processors.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Returns the results of `work` for all jobs, in the order of the jobs. After a failure no further
/// job begins.
///
/// # Errors
/// The failure of the first failed job, in the order of the jobs.
pub fn map<J: Sync, T: Send, E: Send>(
    jobs: &[J],
    work: impl Fn(&J) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<T, E>)>> = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(at) else { return };
                    let result = work(job);
                    if result.is_err() {
                        next.store(jobs.len(), Ordering::Relaxed);
                    }
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_the_jobs_and_a_failure_is_the_answer() {
        let jobs: Vec<u32> = (0..100).collect();
        let double = |n: &u32| Ok::<_, String>(n * 2);
        assert_eq!(map(&jobs, double).unwrap(), (0..200).step_by(2).collect::<Vec<_>>());
        let error = map(&jobs, |&n| if n == 7 { Err("seven") } else { Ok(n) });
        assert_eq!(error.unwrap_err(), "seven");
        assert!(map(&[0; 0], |&n: &i32| Ok::<_, String>(n)).unwrap().is_empty());
    }
}
