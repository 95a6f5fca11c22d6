//! `forebay mrc`: computes miss-ratio curves.

mod args;
mod slice_files;

use std::path::Path;

use forebay_analysis::curve::{self as analysis, Question, policies};
use forebay_analysis::{AnalysisError, miniature};
use forebay_config::Config;
use forebay_render::curve::Curves;
use forebay_render::miniature::Miniature;
use forebay_render::policy_curves::PolicyCurves;

use crate::args::{check_unique, files_of, load_config};
use crate::context::Context;
use crate::error::CliError;
pub use args::Args;
use args::Key;

/// Computes and prints the curves.
pub fn run(mut args: Args, ctx: &Context) -> Result<(), CliError> {
    let config = args.config.as_ref().map(|file| load_config(file)).transpose()?;
    let named = config.as_ref().map(files_of).unwrap_or_default();
    args.output.check(args.traces.traces.iter().chain(&args.config).chain(&named))?;
    if let (Some(file), Some(config)) = (&args.config, config) {
        return in_miniature(&args, file, config, ctx);
    }
    args.check_sizes()?;
    if !args.policies.is_empty() {
        return of_policies(&args, ctx);
    }
    let options = args.options()?;
    if let (Some(slice), Some(slices)) = (args.slice, args.slices) {
        return slice_files::measure(&args, &options, (slice as usize, slices as usize), ctx);
    }
    let answer = if args.merge {
        slice_files::merge(&mut args, options, ctx)
    } else {
        let key = match args.key {
            Key::Sector => analysis::Key::Sector,
            Key::Content => analysis::Key::Content,
        };
        let (traces, slices) = (args.traces.source(), args.slices.map(|slices| slices as usize));
        Question { traces, options, key, slices }.ask(ctx).map_err(|error| args.refused(error))
    }?;
    args.output.give(&Curves {
        answer: &answer,
        files: args.traces.names(),
        points: args.points(),
        at_blocks: args.at(),
    })
}

fn of_policies(args: &Args, ctx: &Context) -> Result<(), CliError> {
    check_unique(&args.policies)?;
    let question = policies::Question {
        traces: args.traces.source(),
        policies: args.policies.clone(),
        sample_rate: args.sample.unwrap_or(1.0),
        block_size: args.block_size,
        points: args.points.unwrap_or(policies::POINTS),
        at_blocks: args.at(),
    };
    let answer = question.ask(ctx).map_err(|error| args.refused(error))?;
    args.output.give(&PolicyCurves { answer: &answer, files: args.traces.names() })
}

fn in_miniature(args: &Args, file: &Path, config: Config, ctx: &Context) -> Result<(), CliError> {
    args.traces.check_rereadable(
        ", but a miniature simulation reads it twice, the first time to choose the sample",
    )?;
    let question = miniature::Question {
        traces: args.traces.source(),
        config,
        sample_rate: args.sample,
        memory_bytes: args.at.iter().map(|size| size.bytes()).collect(),
        flash_bytes: args.flash.iter().map(|size| size.bytes()).collect(),
    };
    let answer = question.ask(ctx).map_err(|error| match error {
        AnalysisError::EmptySample => {
            CliError::failed("the sample has no blocks").next("raise --sample")
        }
        error => error.into(),
    })?;
    let config = file.display().to_string();
    let files = args.traces.names();
    args.output.give(&Miniature { config, answer: &answer, files })
}
