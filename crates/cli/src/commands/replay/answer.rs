//! The answer of a replay or a load.

use std::path::Path;
use std::time::{Duration, Instant};

use forebay_analysis::{Columns, Meter, Observer, Unit};
use forebay_config::Size;
use forebay_render::format::{count, counted};
use forebay_render::run::{Document, Echo};
use forebay_replay::{
    Finished, Hooks, Machine, RealRun, ReplayError, Verified, VerifyResult, Written,
};
use forebay_results::TraceIdentity;

use super::target::Opened;
use crate::context::Context;
use crate::error::CliError;
use crate::output::{OutputArgs, Outputs};
use crate::write_files::write_parquet;

/// Interval between messages about the progress of a stop.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

/// A report, and the failure to print after it.
pub struct Answer {
    pub document: Document,
    failure: Option<CliError>,
}

impl Answer {
    /// Reads the written data back if `--verify` asks for it, closes the target, and assembles the
    /// report.
    pub fn new(
        finished: Finished,
        mut opened: Opened,
        trace: TraceIdentity,
        mut echo: Echo,
        ctx: &Context,
    ) -> Result<Answer, CliError> {
        let Finished { mut result, error, written } = finished;
        // Take the cache's counters before the read-back, which would change them.
        (result.run.cache, result.component_latency_us) =
            opened.host().map(|host| host.cache()).unzip();
        let interrupted = ctx.interrupted();
        let (verify, unread) = match written.filter(|_| error.is_none() && !interrupted) {
            Some(written) => {
                let Verified { result, error } = read_back(&written, &mut opened, ctx);
                (Some(result), error)
            }
            None => (None, None),
        };
        echo.config = opened.config.clone();
        let target = opened.info.clone();
        let mode = opened.on_stop;
        let stopped = opened.into_host().map_or(Ok(()), |host| {
            let mut said = Instant::now();
            host.stop(mode, |dirty| {
                if said.elapsed() >= PROGRESS_PERIOD {
                    said = Instant::now();
                    ctx.note(format_args!("{} dirty blocks left", count(dirty)));
                }
            })
        });
        let failure = match error {
            Some(error) => Some(CliError::from(error)),
            None => failure(&result, interrupted),
        };
        let wrong = verify.as_ref().and_then(|verify| wrong(verify, unread.as_ref()));
        let failures = [failure, wrong, stopped.err().map(CliError::from)];
        let failure = CliError::all(failures.into_iter().flatten());
        let document = Document {
            result,
            verify,
            trace,
            target,
            options: echo,
            machine: Machine::this(),
            version: env!("CARGO_PKG_VERSION"),
        };
        Ok(Answer { document, failure })
    }

    /// Writes the report to every requested output. Fails if an output or the run failed.
    pub fn give(self, output: &OutputArgs, intervals: Option<&Path>) -> Result<(), CliError> {
        let Answer { document, failure } = self;
        let mut outputs = Outputs::default();
        output.give_to(&mut outputs, &document);
        if let Some(path) = intervals {
            let rows = Columns::from_rows(document.result.intervals.iter().copied());
            outputs.add(path.display(), write_parquet(path, &rows));
        }
        CliError::all(outputs.end().err().into_iter().chain(failure)).map_or(Ok(()), Err)
    }
}

fn read_back(written: &Written, opened: &mut Opened, ctx: &Context) -> Verified {
    let progress = ctx.progress("reading back", Unit::Bytes, Some(written.bytes()));
    let clock = opened.clock;
    let hooks = Hooks { stop: ctx.stop_flag(), progress: &|bytes| progress.inc(bytes) };
    written.verify(opened.first(), &clock, hooks)
}

/// The failure of a run; users who do not read the report must also learn of it.
fn failure(result: &RealRun, interrupted: bool) -> Option<CliError> {
    let kept = format!("the report on the {} completed requests", count(result.run.requests));
    if result.ended_by == "signal" || interrupted {
        return Some(CliError::interrupted().kept(kept));
    }
    if result.run.errors > 0 {
        let kinds: Vec<String> =
            result.failures.iter().map(|(kind, n)| format!("{kind}: {n}")).collect();
        let what = format!(
            "{} of {} requests failed ({})",
            count(result.run.errors),
            count(result.run.requests),
            kinds.join(", ")
        );
        return Some(CliError::failed(what).kept(kept));
    }
    None
}

/// The failure of a check of the written data; `unread` is the error that ended the check early.
fn wrong(verify: &VerifyResult, unread: Option<&ReplayError>) -> Option<CliError> {
    if verify.is_right() {
        return None;
    }
    let failed = counted(verify.failed_reads, "read");
    if !verify.is_wrong() {
        let why = match unread {
            Some(error) => error.to_string(),
            None if verify.failed_reads > 0 => format!("{failed} failed"),
            None => {
                let kept = "the report, but part of the written data was not read back";
                return Some(CliError::interrupted().kept(kept));
            }
        };
        let what = format!(
            "the check of the written data is incomplete, because {why}; the {} that could be \
             read back are correct",
            Size(verify.checked_bytes)
        );
        return Some(CliError::failed(what).kept("the report"));
    }
    let mut what = format!(
        "{} of {} bytes read back after the run and {} of {} bytes read during the run differ from \
         the written data",
        verify.wrong_bytes,
        verify.checked_bytes,
        verify.reads_wrong_bytes,
        verify.reads_checked_bytes
    );
    if verify.failed_reads > 0 {
        what += &format!("; {failed} failed");
    }
    if let Some(error) = unread {
        what += &format!("; the check is incomplete: {error}");
    }
    for d in verify.differences.iter().take(3) {
        what += &format!("; volume {} at {}: {}", d.volume, d.offset, d.found);
    }
    Some(CliError::failed(what).kept("the report"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_fail_make_a_check_incomplete_and_no_data_wrong() {
        let whole = VerifyResult { checked_bytes: 4096, complete: true, ..Default::default() };
        assert!(wrong(&whole, None).is_none());
        let failed = VerifyResult { failed_reads: 2, complete: false, ..whole.clone() };
        let said = wrong(&failed, None).unwrap().to_string();
        assert!(said.contains("incomplete, because 2 reads failed; the 4 KiB"), "{said}");
        let both = VerifyResult { wrong_bytes: 512, failed_reads: 1, ..failed };
        let said = wrong(&both, None).unwrap().to_string();
        assert!(said.contains("512 of 4096 bytes") && said.contains("; 1 read failed"), "{said}");
        let stopped = VerifyResult { complete: false, ..whole };
        assert!(wrong(&stopped, None).unwrap().to_string().contains("stopped by a signal"));
    }

    #[test]
    fn a_target_that_fails_makes_a_check_incomplete_and_says_why() {
        let gone = ReplayError::System("reach it", std::io::ErrorKind::BrokenPipe.into());
        let part = VerifyResult { checked_bytes: 4096, ..Default::default() };
        let said = wrong(&part, Some(&gone)).unwrap().to_string();
        assert!(said.contains("incomplete, because cannot reach it"), "{said}");
        assert!(
            said.contains("the 4 KiB that could") && said.contains("kept: the report"),
            "{said}"
        );
        let wrong_too = VerifyResult { wrong_bytes: 512, ..part };
        let said = wrong(&wrong_too, Some(&gone)).unwrap().to_string();
        assert!(said.contains("512 of 4096 bytes") && said.contains("cannot reach it"), "{said}");
    }
}
