//! Completions and the manual page.

use std::time::Duration;

use clap_complete::Shell;
use clap_mangen::Man;
use lockkeeper::ZnodePath;

use crate::args::{Cli, CompletionsOptions};
use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::print;
use crate::shared::view::printable;

/// How long a user waits for names after pressing Tab.
const NAMES_LIMIT: Duration = Duration::from_secs(1);

/// Appended to the script: completes names where the script knows nothing but options, except, after --, in a command.
const BASH_NAMES: &str = r#"
_lockkeeper_with_names() {
    local word cur=${COMP_WORDS[COMP_CWORD]} names
    # The words of man are those of help.
    [[ $cur != -* && ${COMP_WORDS[1]} == man ]] && COMP_WORDS[1]=help
    _lockkeeper "$@" || return 0
    [[ $COMP_CWORD -lt 2 || $cur == -* ]] && return
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ $word == -- ]] && { COMPREPLY=(); return; }
    done
    for word in "${COMPREPLY[@]}"; do
        [[ $word != -* ]] && return
    done
    case ${COMP_WORDS[1]} in serve|local|engine|doctor|import|settings|demo|completions|help) return ;; esac
    mapfile -t names < <(lockkeeper completions --names "$cur" 2>/dev/null)
    if ((${#names[@]})); then
        COMPREPLY=("${names[@]}")
        [[ ${#names[@]} -eq 1 && ${names[0]} == */ ]] && compopt -o nospace
    fi
}
complete -F _lockkeeper_with_names -o bashdefault -o default lockkeeper
"#;

/// The end of the branch for the value of an option in a script for bash, and what replaces it: names are not asked for
/// after a failure.
const BASH_VALUE: [&str; 2] =
    ["\n                    return 0\n", "\n                    return 1\n"];

const ZSH_NAMES: &str = r#"
_lockkeeper_names() {
    local -a names
    names=("${(@f)$(lockkeeper completions --names "$PREFIX" 2>/dev/null)}")
    compadd -S '' -- ${names:#}
}
"#;

const FISH_NAMES: &str = r#"
complete -c lockkeeper -n '__fish_seen_subcommand_from run hold wait revoke ls show permits ticks elect leader queue members service value counter id barrier pool watch export; and not contains -- -- (commandline -opc)' -a '(lockkeeper completions --names (commandline -ct) 2>/dev/null)'
"#;

/// The arguments that are names on the servers, as written in a script for zsh.
const ZSH_ARGUMENTS: [&str; 7] = ["lock", "locks", "name", "path", "group", "service", "barrier"];

/// Prints a completion script, or names.
pub(crate) async fn completions(
    global: &Global,
    options: CompletionsOptions,
) -> Result<u8, Failure> {
    match (options.names, options.shell) {
        (Some(prefix), _) => print(&names(global, &prefix).await.unwrap_or_default())?,
        (None, Some(shell)) => print(&script(shell))?,
        (None, None) => {}
    }
    Ok(Exit::Ok.code())
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::definition(), "lockkeeper", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script.replace(BASH_VALUE[0], BASH_VALUE[1]) + BASH_NAMES,
        Shell::Fish => script + FISH_NAMES,
        Shell::Zsh => {
            let named = |line: &str| {
                let argument = line.trim_start_matches(['\'', '*', ':']);
                let argument = argument.split(" -- ").next().unwrap_or_default();
                match ZSH_ARGUMENTS.contains(&argument) {
                    true => line.replace(":_default'", ":_lockkeeper_names'"),
                    false => line.to_owned(),
                }
            };
            let lines: Vec<_> = script.lines().map(named).collect();
            // The definitions must come before the code that runs.
            lines.join("\n").replacen(
                "\n_lockkeeper() {",
                &format!("{ZSH_NAMES}\n_lockkeeper() {{"),
                1,
            ) + "\n"
        }
        _ => script,
    }
}

/// The names with this prefix, one on each line; a name with others below it ends with a slash.
async fn names(global: &Global, prefix: &str) -> Option<String> {
    let (folder, begin) = prefix.rsplit_once('/').unwrap_or(("", prefix));
    let path = match folder.trim_start_matches('/') {
        "" => ZnodePath::root(),
        folder => ZnodePath::new(&format!("/{folder}")).ok()?,
    };
    let connection = Connection::with_what_runs(global, NAMES_LIMIT).await.ok()?;
    let found = tokio::time::timeout(NAMES_LIMIT, connection.client.children(&path)).await;
    connection.close().await;
    let (mut found, _) = found.ok()?.ok()?;
    found.retain(|name| name.starts_with(begin) && is_of_user(&path, name));
    found.sort_unstable();
    let given = &prefix[..prefix.len() - begin.len()];
    Some(found.iter().map(|name| format!("{}\n", printable(&format!("{given}{name}")))).collect())
}

/// Whether a user would type the name of a node: it is not a contender, and not reserved for the servers.
fn is_of_user(folder: &ZnodePath, name: &str) -> bool {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let is_numbered = digits == 10 && name.len() > 10;
    let is_servers = folder.is_root() && (name == "zookeeper" || name.starts_with("lockkeeper-"));
    !is_numbered && !is_servers && !name.contains("__")
}

/// Prints the manual page of the command, or of this subcommand.
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
    // As in the help: clap would list every option, and omit the -- before a command.
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    let source = format!("lockkeeper {}", env!("CARGO_PKG_VERSION"));

    let mut page = Vec::new();
    let man = Man::new(command.override_usage(usage)).source(source);
    man.render(&mut page).map_err(|error| {
        Failure::new(Exit::Bug, format!("cannot write the manual page: {error}"))
    })?;
    // clap's heading for the text after the options is EXTRA.
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

    #[test]
    fn scripts_complete_names() {
        let zsh = script(Shell::Zsh);
        for argument in ["':lock -- ", "'*::locks -- ", "':name -- "] {
            let lines: Vec<_> = zsh.lines().filter(|line| line.starts_with(argument)).collect();
            let all = lines.iter().all(|line| line.contains(":_lockkeeper_names'"));
            assert!(!lines.is_empty() && all, "{argument}: {lines:?}");
        }
        let place = |text| zsh.find(text).expect("it is there");
        assert!(place("_lockkeeper_names() {") < place("_lockkeeper() {"));
        assert!(
            script(Shell::Bash).trim_end().ends_with(
                "complete -F _lockkeeper_with_names -o bashdefault -o default lockkeeper"
            )
        );
    }

    #[test]
    fn contenders_are_no_names() {
        let root = ZnodePath::root();
        let folder = ZnodePath::new("/backups").expect("a path");
        assert!(is_of_user(&folder, "nightly") && is_of_user(&folder, "zookeeper"));
        assert!(!is_of_user(&root, "zookeeper") && !is_of_user(&root, "lockkeeper-outcomes"));
        assert!(!is_of_user(&folder, "_c_5e1d-lock-0000000041"));
        assert!(!is_of_user(&folder, "e2e1__lock__0000000041"));
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

    /// Symptom: completions offered the internal first argument that starts this machine's engine.
    #[test]
    fn only_commands_for_users_are_completed() {
        let script = script(Shell::Bash);
        assert!(script.contains("permits") && !script.contains("local-engine"), "{script}");
    }
}
