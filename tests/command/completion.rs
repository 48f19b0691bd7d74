//! Completion in a shell: of names on the servers, and of nothing else's command.

use std::fs;
use std::process::Command;

use anyhow::Result;

use crate::support::{Ended, Home};

/// What a bash with the script offers for these words, of which the last one is being written.
fn offered(home: &Home, words: &[&str]) -> Result<Vec<String>> {
    let script = "source completions.bash; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($#-1)); COMPREPLY=(); \
                  _lockkeeper_with_names lockkeeper \"${COMP_WORDS[COMP_CWORD]}\" \
                  \"${COMP_WORDS[COMP_CWORD-1]}\" 2>/dev/null; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let lockkeeper = home.command("");
    let mut command = Command::new("bash");
    command.args(["-c", script, "bash", "lockkeeper"]).args(words).current_dir(home.folder());
    for (name, value) in lockkeeper.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    // The script calls it by its name.
    let program = std::path::Path::new(lockkeeper.get_program());
    let folder = program.parent().unwrap_or(program);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(paths)?);
    Ok(Ended::of(&mut command)?.stdout.split_whitespace().map(str::to_owned).collect())
}

#[test]
fn names_on_the_servers_are_completed() -> Result<()> {
    let home = Home::new()?;
    fs::write(home.folder().join("completions.bash"), home.ends("completions bash")?.stdout)?;
    assert_eq!(offered(&home, &["show", "j"])?, [""; 0], "no engine is started for it");
    assert_eq!(home.ends("local status")?.code, Some(1));

    home.ends("queue put jobs a")?.is_fine();
    home.runs("backups/nightly", "true")?.is_fine();
    assert_eq!(offered(&home, &["show", ""])?, ["backups", "jobs"]);
    assert_eq!(offered(&home, &["queue", "put", "jo"])?, ["jobs"]);
    assert_eq!(offered(&home, &["run", "backups/"])?, ["backups/nightly"]);
    assert_eq!(offered(&home, &["queue", "p"])?, ["put"]);
    assert_eq!(offered(&home, &["run", "--sh"])?, ["--shared"]);
    assert_eq!(offered(&home, &["run", "jobs", "--", "ls", ""])?, [""; 0], "those of ls");
    assert!(!offered(&home, &["serve", ""])?.contains(&"jobs".to_owned()));
    Ok(())
}

/// Symptom: with a name on the servers, `queue` offered it in place of `put`, and options offered it as their value.
#[test]
fn names_do_not_hide_other_words() -> Result<()> {
    let home = Home::new()?;
    fs::write(home.folder().join("completions.bash"), home.ends("completions bash")?.stdout)?;
    home.ends("queue put jobs a")?.is_fine();
    let has = |words: &[&str], word: &str| -> Result<bool> {
        Ok(offered(&home, words)?.iter().any(|it| it == word))
    };
    for (words, word) in [
        (["queue", ""].as_slice(), "put"),
        (&["value", ""], "set"),
        (&["--json", "queue", ""], "put"),
        (&["help", ""], "queue"),
        (&["help", "queue", ""], "put"),
        (&["man", ""], "queue"),
        (&["man", "queue", ""], "put"),
        (&["run", "--on-outage", ""], "pause"),
        (&["record", "--file", ""], "completions.bash"),
    ] {
        assert!(
            has(words, word)? && !has(words, "jobs")?,
            "{words:?}: {:?}",
            offered(&home, words)
        );
    }
    // No file begins with it.
    assert_eq!(offered(&home, &["record", "--file", "jo"])?, [""; 0]);
    assert_eq!(offered(&home, &["help", "run", ""])?, [""; 0]);
    assert_eq!(offered(&home, &["man", "run", ""])?, [""; 0]);
    assert!(has(&["man", "-"], "--help")?);
    assert_eq!(offered(&home, &["run", "-q", ""])?, ["jobs"]);
    Ok(())
}
