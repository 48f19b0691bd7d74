//! Where all participants say what happens to them, and the resources that they write to.
//!
//! A socket of the file system, so that no fault of the network touches it. Each line carries the
//! time at which it was true, by the clock that all processes of a machine share; see
//! `tests/cluster/ensemble/README.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{Fence, FencingToken};
use lockkeeper_testkit::clock;
use lockkeeper_testkit::history::{Entry, History, What};

/// The socket's name in the folder that all share.
pub(super) const SOCKET: &str = "recorder";

/// What has been said so far.
#[derive(Clone)]
pub(super) struct Recorder {
    start: Duration,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    /// How often each worker was granted a lock.
    turns: BTreeMap<String, usize>,
    fences: BTreeMap<String, Fence>,
    /// Who said that a session is his.
    sessions: BTreeMap<String, BTreeSet<String>>,
}

impl Recorder {
    /// Listens in a folder, for as long as this process lives.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        let recorder = Self { start: clock::now(), state: Arc::default() };
        let socket = folder.join(SOCKET);
        let listener = UnixListener::bind(&socket).with_context(|| format!("{socket:?}"))?;
        let accepting = recorder.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let recorder = accepting.clone();
                thread::spawn(move || recorder.listen(&stream));
            }
        });
        Ok(recorder)
    }

    /// Until the other end is closed, as it is when a program dies.
    fn listen(&self, stream: &UnixStream) {
        let mut stream_in = BufReader::new(stream);
        let Some(who) = whole_line(&mut stream_in) else { return };
        while let Some(line) = whole_line(&mut stream_in) {
            let words: Vec<&str> = line.split(' ').collect();
            let reply = match words[..] {
                [_, "write", lock, token] => self.write(&who, lock, token),
                _ => self.said(&who, &words).map(|()| ""),
            };
            match reply {
                Some("") => {}
                // Whoever asked may be gone.
                Some(reply) => drop(writeln!(&mut &*stream, "{reply}")),
                None => self.note(&who, What::Stuck(format!("said {line:?}"))),
            }
        }
    }

    fn said(&self, who: &str, words: &[&str]) -> Option<()> {
        let (time, words) = words.split_first()?;
        let what = match words {
            ["what", json @ ..] => match serde_json::from_str(&json.join(" ")).ok()? {
                What::Claimed { lock, token, until } => {
                    What::Claimed { lock, token, until: until.saturating_sub(self.start) }
                }
                what => what,
            },
            ["session", session] => {
                let mut state = self.state();
                state.sessions.entry((*session).to_owned()).or_default().insert(who.to_owned());
                What::Note(format!("has the session {session}"))
            }
            _ => return None,
        };
        let at = self.since_start(time)?;
        self.push(at, who, what);
        Some(())
    }

    /// The resource that a lock guards: it decides by the token alone.
    fn write(&self, who: &str, lock: &str, token: &str) -> Option<&'static str> {
        let (lock, fenced) = (lock.to_owned(), token.parse::<FencingToken>().ok()?);
        let token = fenced.to_u128();
        let mut state = self.state();
        let admitted = state.fences.entry(lock.clone()).or_default().admit(fenced).is_ok();
        let at = clock::now().saturating_sub(self.start);
        let (reply, what) = match admitted {
            true => ("admitted", What::Admitted { lock, token }),
            false => ("refused", What::Refused { lock, token }),
        };
        state.entries.push(Entry { at, who: who.to_owned(), what });
        Some(reply)
    }

    /// Adds a line of now.
    pub(super) fn note(&self, who: &str, what: What) {
        self.push(clock::now().saturating_sub(self.start), who, what);
    }

    fn push(&self, at: Duration, who: &str, what: What) {
        let mut state = self.state();
        if matches!(what, What::Granted { .. } | What::Believes { .. }) {
            *state.turns.entry(who.to_owned()).or_default() += 1;
        }
        state.entries.push(Entry { at, who: who.to_owned(), what });
    }

    /// How often each worker has held.
    pub(super) fn turns(&self) -> BTreeMap<String, usize> {
        self.state().turns.clone()
    }

    /// Whose sessions are whose.
    pub(super) fn sessions(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.state().sessions.clone()
    }

    /// All of it, in the order of time.
    pub(super) fn history(&self) -> History {
        let mut entries = self.state().entries.clone();
        entries.sort_by_key(|entry| entry.at);
        let mut history = History::default();
        for Entry { at, who, what } in entries {
            history.push(at, who, what);
        }
        history
    }

    fn since_start(&self, nanos: &str) -> Option<Duration> {
        Some(Duration::from_nanos(nanos.parse().ok()?).saturating_sub(self.start))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `None` at the end, which may be in the middle of a line if the program was killed.
fn whole_line(stream: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    line.strip_suffix('\n').map(str::to_owned)
}

/// What a participant in this language says to the recorder.
#[derive(Clone)]
pub(super) struct Pen {
    socket: PathBuf,
    who: String,
    stream: Arc<Mutex<UnixStream>>,
}

impl Pen {
    pub(super) fn new(folder: &Path, who: &str) -> Result<Self> {
        let socket = folder.join(SOCKET);
        let stream = Arc::new(Mutex::new(introduce(&socket, who)?));
        Ok(Self { socket, who: who.to_owned(), stream })
    }

    pub(super) fn note(&self, at: Duration, what: &What) {
        self.say(at, &format!("what {}", serde_json::to_string(what).unwrap_or_default()));
    }

    pub(super) fn say(&self, at: Duration, words: &str) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        // The recorder ends last, or the test has failed anyway.
        let _ = send(&mut stream, &format!("{} {}", at.as_nanos(), words));
    }

    /// Sends a write to the resource, and waits for the answer.
    pub(super) fn write(&self, lock: &str, token: FencingToken) -> Result<String> {
        let mut stream = introduce(&self.socket, &self.who)?;
        send(&mut stream, &format!("{} write {lock} {token}", clock::now().as_nanos()))?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(answer)
    }
}

fn introduce(socket: &Path, who: &str) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(socket).context("no recorder")?;
    send(&mut stream, who)?;
    Ok(stream)
}

/// All of a line at once.
fn send(stream: &mut UnixStream, line: &str) -> std::io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())
}
