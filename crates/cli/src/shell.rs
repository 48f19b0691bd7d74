//! Completions and the manual page.

use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::shared::exit::{Exit, Failure};
use crate::shared::output::print;

/// Prints a completion script.
pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::definition(), "lockkeeper", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok.code())
}

/// Prints the manual page of the command, or of the subcommand that these words name.
pub(crate) fn man(words: &[String]) -> Result<u8, Failure> {
    print(&page(described(words)?)?)?;
    Ok(Exit::Ok.code())
}

fn described(words: &[String]) -> Result<clap::Command, Failure> {
    words.iter().try_fold(Cli::without_help(), |command, word| {
        let found = command.find_subcommand(word).cloned();
        found.ok_or_else(|| Failure::new(Exit::Usage, format!("{word:?} is not a subcommand")))
    })
}

fn page(mut command: clap::Command) -> Result<String, Failure> {
    // As in the help: clap would list every option, and leave out the -- before a command.
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    let source = format!("lockkeeper {}", env!("CARGO_PKG_VERSION"));

    let mut page = Vec::new();
    let man = Man::new(command.override_usage(usage)).source(source);
    man.render(&mut page).map_err(|error| {
        Failure::new(Exit::Bug, format!("cannot write the manual page: {error}"))
    })?;
    // clap has no better word for what follows the options in the help.
    Ok(String::from_utf8_lossy(&page).replace("\n.SH EXTRA\n", "\n.SH NOTES\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: the synopsis of `run` had 23 options and no `--`, and the exit codes were below EXTRA.
    #[test]
    fn a_page_begins_with_the_usage_and_ends_with_notes() {
        let command = Cli::definition().find_subcommand("run").cloned().expect("it is there");
        let page = page(command).expect("it can be written");
        let synopsis = page.split(".SH SYNOPSIS\n").nth(1).and_then(|rest| rest.lines().next());
        assert_eq!(synopsis, Some("\\fBlockkeeper run\\fR [OPTIONS] <LOCK>... \\-\\- <CMD>..."));
        assert!(page.contains("\n.SH NOTES\n") && !page.contains("EXTRA"), "{page}");
    }

    /// Symptom: pages named `lockkeeper-help(1)` and `lockkeeper-local-status(1)`, which could not be printed.
    #[test]
    fn every_page_that_a_page_names_can_be_printed() {
        let mut left = vec![Vec::new()];
        let mut printed = 0;
        while let Some(words) = left.pop() {
            let command = described(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
            let below = command.get_subcommands().map(|below| below.get_name().to_owned());
            let below: Vec<String> = below.collect();
            let page = page(command).expect("it can be written");
            assert!(!page.contains("help(1)"), "{page}");
            let named = page.lines().filter(|line| line.ends_with("(1)"));
            for name in named.map(|line| line.replace('\\', "")) {
                let is_below = |word: &&String| name.ends_with(&format!("-{word}(1)"));
                let word = below.iter().find(is_below).unwrap_or_else(|| panic!("{name}"));
                left.push([words.as_slice(), std::slice::from_ref(word)].concat());
            }
            printed += 1;
        }
        assert!(printed > 25, "{printed}");
    }

    /// Symptom: completions offered the word by which the command starts this machine's engine.
    #[test]
    fn only_commands_for_users_are_completed() {
        let mut script = Vec::new();
        clap_complete::generate(Shell::Bash, &mut Cli::definition(), "lockkeeper", &mut script);
        let script = String::from_utf8(script).expect("text");
        assert!(script.contains("permits") && !script.contains("local-engine"), "{script}");
    }
}
