//! Wall clocks that jump, for programs in any language: a small library is preloaded into them and shifts the time that
//! they read.
//!
//! The machine's own clock is unchanged. The clocks that count from the start of the machine are unchanged too: no
//! program can set those.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

const SOURCE: &str = include_str!("wall_clock.c");

/// A wall clock that several programs share.
#[derive(Debug)]
pub struct WallClock {
    library: PathBuf,
    file: PathBuf,
    /// Its offset from the real time, in seconds.
    shift: File,
}

impl WallClock {
    /// Creates a clock with offset 0, with its files in `folder`, named `name`.
    ///
    /// # Errors
    ///
    /// No C compiler is installed, or the files cannot be written.
    pub fn new(name: &str, folder: &Path) -> Result<Self> {
        let library = folder.join("wall_clock.so");
        if !library.exists() {
            compile(folder, &library)?;
        }
        let file = folder.join(format!("{name}.clock"));
        let shift = File::create(&file).with_context(|| format!("cannot create {file:?}"))?;
        let clock = Self { library, file, shift };
        clock.jump_to(0)?;
        Ok(clock)
    }

    /// Sets it this many seconds ahead of the real time; behind, if negative.
    ///
    /// # Errors
    ///
    /// Its file cannot be written.
    pub fn jump_to(&self, seconds: i64) -> Result<()> {
        self.shift.write_all_at(&seconds.to_ne_bytes(), 0).context("cannot shift a wall clock")
    }

    /// Makes a command that is not yet started use this clock.
    pub fn show_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("LOCKKEEPER_WALL_CLOCK", &self.file);
    }
}

fn compile(folder: &Path, library: &Path) -> Result<()> {
    let source = folder.join("wall_clock.c");
    fs::write(&source, SOURCE)?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o"]);
    process::run_tool(gcc.arg(library).arg(&source).arg("-ldl"), "gcc refuses")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::peers::{self, Peer};
    use crate::process::Process;
    use crate::scratch;

    const HOUR: i64 = 3_600;

    /// Prints the seconds of the wall clock and of the steady clock, a line each, until it is killed.
    const TELL: &str = "import time\n\
        while True:\n  print(int(time.time()), int(time.monotonic()), flush=True); time.sleep(0.01)";

    #[tokio::test]
    async fn a_running_program_sees_the_wall_clock_jump_and_no_other() -> Result<()> {
        if !peers::ready("testkit: wall clocks", &[Peer::WallClock]) {
            return Ok(());
        }
        let folder = scratch::folder()?;
        let clock = WallClock::new("one", folder.path())?;
        let mut command = Command::new(peers::SYSTEM_PYTHON);
        command.args(["-c", TELL]);
        clock.show_to(&mut command);
        let mut process = Process::spawn("teller", &command, folder.path())?;
        process.prints("\n", Duration::from_secs(60)).await?;
        let first = told(&process, |_| true);
        for shift in [HOUR, -HOUR] {
            clock.jump_to(shift)?;
            let jumped = |wall: i64| (wall - first.0 - shift).abs() < HOUR / 2;
            while !told_any(&process, jumped) {
                assert_eq!(process.status()?, None, "{}", process.tail());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let (_, steady) = told(&process, jumped);
            assert!((0..HOUR / 2).contains(&(steady - first.1)), "the steady clock jumped too");
        }
        Ok(())
    }

    fn lines(process: &Process) -> Vec<(i64, i64)> {
        let output = process.stdout();
        // The last line may be incomplete.
        let whole = output.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let parse = |line: &str| {
            let (wall, steady) = line.split_once(' ')?;
            Some((wall.parse().ok()?, steady.parse().ok()?))
        };
        whole.lines().filter_map(parse).collect()
    }

    fn told_any(process: &Process, wanted: impl Fn(i64) -> bool) -> bool {
        lines(process).iter().any(|(wall, _)| wanted(*wall))
    }

    fn told(process: &Process, wanted: impl Fn(i64) -> bool) -> (i64, i64) {
        *lines(process).iter().find(|(wall, _)| wanted(*wall)).expect("it has reported")
    }
}
