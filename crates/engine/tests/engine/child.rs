//! An engine in a process of its own: this test program, started again.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use lockkeeper_engine::{Builder, Engine};
use rustix::process::{Pid, Signal, kill_process};

/// The text that the child prints before its address.
const LISTENING: &str = "listening ";

/// A running engine, killed on drop. It also ends with this process.
pub(crate) struct EngineProcess {
    process: Child,
    pub(crate) connect: String,
}

impl EngineProcess {
    /// Runs the ignored test `test`, which calls [`serve`], with these variables.
    pub(crate) fn start(test: &str, variables: &[(&str, &str)]) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args([test, "--exact", "--ignored", "--nocapture"])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok);
        let connect = lines.find_map(|line| line.strip_prefix(LISTENING).map(str::to_owned));
        Self { process, connect: connect.expect("the child did not start") }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
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
    println!("\n{LISTENING}{}", engine.connect_string());
    let _ = std::io::stdin().read(&mut [0]);
}
