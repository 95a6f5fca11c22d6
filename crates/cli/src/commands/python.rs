//! The commands of the Python package: `forebay study` runs `forebay-study`.
//!
//! They are declared here so that help, manual pages and completions list them. `python/forebay`
//! implements the commands and parses their options.

use std::ffi::OsString;

use crate::context::Context;
use crate::error::CliError;
use crate::write_files::write_stdout;

/// Declares commands of the package: each has a name, a word for its arguments, a description, and
/// text that follows its help.
macro_rules! commands {
    ($($args:ident = $name:literal, $value:literal, $about:literal, $help:literal;)+) => {
        $(
            #[doc = concat!("Arguments of `forebay ", $name, "`.")]
            #[derive(clap::Args, Debug)]
            #[command(disable_help_flag = true, disable_version_flag = true, after_help = $help)]
            pub struct $args {
                #[doc = $about]
                #[arg(value_name = $value, trailing_var_arg = true, allow_hyphen_values = true)]
                pub words: Vec<OsString>,
            }

            impl $args {
                /// Runs the package's program; returns only on failure.
                pub fn run(&self, ctx: &Context) -> Result<(), CliError> {
                    run($name, &self.words, ctx)
                }
            }
        )+
    };
}

commands! {
    Representatives = "representatives", "TRACE", "Trace files in any supported format, and options of the Python command",
        "Options: --features FILE (a table of features instead of traces), --clusters N, --dimensions N, \
--format NAME, --limit N, --json, -o FILE, --parquet FILE, --html FILE. With the package installed, \
`forebay representatives --help` describes them; docs/python.md explains how to install it.

Example:
  $ forebay trace synth zipf:requests=1000 -o a.csv
  $ forebay trace synth sequential:requests=1000 -o b.csv
  $ forebay representatives a.csv b.csv --clusters 2";
    Study = "study", "FILE", "A study file, and options",
        "Options: -o DIR, --dry-run, --workers N, --scheduler ADDRESS, --retry-failed. With the package \
installed, `forebay study --help` describes them; docs/studies.md describes the study file.

Example:
  $ forebay trace synth zipf:requests=5000 -o zipf.csv
  $ echo 'traces = [\"zipf.csv\"]' > sizes.toml
  $ echo '[sweep]' >> sizes.toml
  $ echo '\"cache.dram\" = [\"5%\", \"20%\"]' >> sizes.toml
  $ forebay study sizes.toml -o sizes";
    Fleet = "fleet", "DIR", "A directory with traces, and options",
        "Options: -o DIR, --glob PATTERN, --budget USD|%, --backing DEVICE, --consolidate SIZE, --partition FLASH, \
--max-blocks N, --points N, --slices N, --slice-above SIZE, --no-features, --workers N, \
--scheduler ADDRESS, --retry-failed. With the package installed, `forebay fleet --help` describes them; see also docs/studies.md.

Example:
  $ mkdir traces
  $ forebay trace synth zipf:requests=1000 -o traces/a.csv
  $ forebay trace synth sequential:requests=1000 -o traces/b.csv
  $ forebay fleet traces -o fleet";
    Advise = "advise", "TRACE", "A trace in any supported format, and options",
        "Options: --dram SIZE, --flash SIZE, --model FILE, --train DIR, --json, -o FILE, --html FILE, --format NAME, \
--limit N, --workers N, --scheduler ADDRESS. With the package installed, `forebay advise --help` describes them; \
docs/studies.md explains what the advice is based on.

Example:
  $ forebay trace synth zipf:requests=20000 -o a.csv
  $ forebay advise a.csv";
}

fn run(name: &str, words: &[OsString], ctx: &Context) -> Result<(), CliError> {
    // clap has consumed `-q`, which every program of the package also accepts.
    let quiet = ctx.is_quiet().then(|| OsString::from("--quiet"));
    let all: Vec<OsString> = quiet.into_iter().chain(words.iter().cloned()).collect();
    let error = super::external::run_python(name, &all);
    if words.iter().any(|word| word == "--help" || word == "-h") {
        // If the package is not installed, print the help page that clap generates.
        let mut command = super::description();
        // Building sets the page's command name to `forebay NAME`.
        command.build();
        let page = command.find_subcommand_mut(name).map(|c| c.render_long_help());
        return write_stdout(page.unwrap_or_default().to_string().as_bytes());
    }
    error
}
