//! Completions and the manual page.

use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::exit::{Exit, Failure};
use crate::output::print;

/// Prints a completion script.
pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::definition(), "lockkeeper", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok.code())
}

/// Prints the manual page of the command, or of a subcommand.
pub(crate) fn man(name: Option<&str>) -> Result<u8, Failure> {
    let command = Cli::definition();
    let command = match name {
        None => command,
        Some(name) => {
            let found = command.find_subcommand(name).cloned();
            found
                .ok_or_else(|| Failure::new(Exit::Usage, format!("{name:?} is not a subcommand")))?
        }
    };
    print(&page(command)?)?;
    Ok(Exit::Ok.code())
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
}
