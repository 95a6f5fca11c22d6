//! The error for a command that does not exist.

use clap::Command;
use forebay_names::nearest;

use crate::error::CliError;

/// The error for the unknown command `name`. Words in `before` that are commands select the group
/// of commands to suggest from; others are ignored.
pub fn command(
    root: &Command,
    before: impl IntoIterator<Item = impl AsRef<str>>,
    name: &str,
) -> CliError {
    let (mut group, mut path) = (root, root.get_name().to_owned());
    for word in before {
        if let Some(inner) = group.find_subcommand(word.as_ref()) {
            group = inner;
            path = format!("{path} {}", inner.get_name());
        }
    }
    let is_root = std::ptr::eq(group, root);
    let error = CliError::usage(match is_root {
        true => format!("there is no command `{name}`"),
        false => format!("there is no command `{path} {name}`"),
    });
    let names = || group.get_subcommands().map(Command::get_name);
    match nearest(name, names()) {
        Some(near) => error.next(format_args!("did you mean `{path} {near}`?")),
        None if is_root => error.next("`forebay help` lists the commands"),
        None => {
            let all: Vec<&str> = names().collect();
            error.next(format_args!("the commands of `{path}` are {}", all.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::description;

    fn said(words: &str) -> String {
        let words: Vec<&str> = words.split(' ').collect();
        let (name, before) = words.split_last().unwrap();
        command(&description(), before, name).to_string()
    }

    #[test]
    fn a_misspelt_command_is_answered_with_the_nearest_one() {
        for (words, near) in [
            ("trcae", "forebay trace"),
            ("mcr", "forebay mrc"),
            ("studdy", "forebay study"),
            ("help serv", "forebay serve"),
            ("trace inof", "forebay trace info"),
            ("help trace inof", "forebay trace info"),
            ("-q ctl statu", "forebay ctl status"),
        ] {
            let says = format!("did you mean `{near}`?");
            assert!(said(words).contains(&says), "{words}: {}", said(words));
        }
    }

    #[test]
    fn without_a_near_name_the_commands_are_listed_or_the_list_is_named() {
        assert!(said("zzz").ends_with("`forebay help` lists the commands"), "{}", said("zzz"));
        let says = "no command `forebay trace show`\n  next: the commands of `forebay trace` are \
                    info, convert, synth";
        assert!(said("trace show").ends_with(says), "{}", said("trace show"));
    }
}
