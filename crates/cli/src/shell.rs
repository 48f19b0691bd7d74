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
            found.ok_or_else(|| Failure::new(Exit::Usage, format!("{name:?} is no subcommand")))?
        }
    };
    let mut page = Vec::new();
    Man::new(command).render(&mut page).map_err(|error| {
        Failure::new(Exit::Bug, format!("cannot write the manual page: {error}"))
    })?;
    print(&String::from_utf8_lossy(&page))?;
    Ok(Exit::Ok.code())
}
