//! An engine in a process of its own: this test program, started again.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use lockkeeper_engine::{Builder, Engine};
use rustix::process::{Pid, Signal, kill_process};

/// The text that the child prints before its process id and its address.
const LISTENING: &str = "listening ";

/// The program that starts the child, for example with the limits of a service manager.
const UNDER: &str = "LOCKKEEPER_TEST_UNDER";

/// A running engine, killed on drop. It also ends with this process.
pub(crate) struct EngineProcess {
    process: Child,
    /// That of the engine, if another program has started it.
    id: u32,
    pub(crate) connect: String,
}

impl EngineProcess {
    /// Runs the ignored test `test`, which calls [`serve`], with these variables.
    pub(crate) fn start(test: &str, variables: &[(&str, &str)]) -> Self {
        let program = env::current_exe().unwrap();
        let mut command = match env::var_os(UNDER) {
            Some(under) => {
                let mut command = Command::new(under);
                command.arg(program);
                command
            }
            None => Command::new(program),
        };
        let mut process = command
            .args([test, "--exact", "--ignored", "--nocapture"])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok);
        let told = lines.find_map(|line| line.strip_prefix(LISTENING).map(str::to_owned));
        let told = told.expect("the child did not start");
        let (id, connect) = told.split_once(' ').unwrap();
        Self { process, id: id.parse().unwrap(), connect: connect.to_owned() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.id.cast_signed()).unwrap(), signal).unwrap();
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        // The process may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves until the parent ends: the child's side.
pub(crate) async fn serve(builder: Builder) {
    wait(&builder.start().await.unwrap());
}

/// Prints where the engine listens, and waits until the parent ends.
pub(crate) fn wait(engine: &Engine) {
    println!("\n{LISTENING}{} {}", std::process::id(), engine.connect_string());
    let _ = std::io::stdin().read(&mut [0]);
}
