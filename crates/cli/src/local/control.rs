//! Asking the machine-local engine how it is, and to stop.
//!
//! One line to ask, one line of JSON as the answer. After `stop` the engine's end of the
//! connection is open for as long as its process lives.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lockkeeper_engine::files::is_owner;
use lockkeeper_engine::{Durability, Engine};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt};
use tokio::net;
use tokio::task::{AbortHandle, JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use super::home::Home;
use super::room::Room;
use crate::shared::exit::{Exit, Failure};

/// How long the other side may take to ask or to answer.
const TALK_LIMIT: Duration = Duration::from_secs(5);

/// How long an engine may take to end.
const END_LIMIT: Duration = Duration::from_secs(60);

/// How many connections of the owner and root, and how many of other users, may be about to ask.
const MAX_ASKERS: usize = 64;

/// The longest question, in bytes.
const LONGEST: u64 = 64;

/// What the engine tells. The names are stable: `local status --json` prints them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Status {
    pub(super) running: bool,
    pub(super) pid: u32,
    pub(super) version: String,
    pub(super) uptime_ms: u64,
    pub(super) socket: PathBuf,
    pub(super) data_dir: PathBuf,
    pub(super) durability: String,
    pub(super) sessions: usize,
    /// For how long no session begins yet.
    #[serde(default)]
    pub(super) quiet_ms: u64,
    #[serde(flatten)]
    pub(super) room: Option<Room>,
}

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Status,
    Stop,
}

impl Question {
    fn word(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Stop => "stop",
        }
    }
}

/// What comes back.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Reply {
    Refused { refused: String },
    Status(Status),
}

/// An answer, and the connection that it came over.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: Status,
    engine: BufReader<UnixStream>,
}

/// Asks the engine; `None` if none runs.
pub(super) fn ask(home: &Home, question: Question) -> Result<Option<Answer>, Failure> {
    ask_within(home, question, TALK_LIMIT)
}

/// The same for somebody who does not wait for longer than that, nor for [`TALK_LIMIT`].
pub(super) fn ask_within(
    home: &Home,
    question: Question,
    limit: Duration,
) -> Result<Option<Answer>, Failure> {
    let limit = limit.min(TALK_LIMIT);
    let silent = |home, error| silent(home, error, limit);
    let stream = match UnixStream::connect(home.admin_socket()) {
        Ok(stream) => stream,
        Err(error) if is_nobody(&error) => return Ok(None),
        Err(error) => return Err(silent(home, &error)),
    };
    match talk(stream, question, limit) {
        Ok(Ok(answer)) => Ok(Some(answer)),
        Ok(Err(refused)) => Err(Failure::new(Exit::NoPermission, refused)),
        // It was ending as we asked.
        Err(error) if is_nobody(&error) => Ok(None),
        Err(error) => Err(silent(home, &error)),
    }
}

fn is_nobody(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof
    )
}

fn silent(home: &Home, error: &io::Error, limit: Duration) -> Failure {
    let socket = home.admin_socket();
    let why = match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("silent for {limit:?}"),
        _ => error.to_string(),
    };
    let message = format!("the engine behind {} does not answer: {why}", socket.display());
    let advice = format!(
        "try again, and see its log ({}); end its process only if its clients get no answers either",
        home.log().display()
    );
    Failure::new(Exit::NoServer, message).advise(&advice)
}

/// Asks; an answer, or why there is none.
fn talk(
    stream: UnixStream,
    question: Question,
    limit: Duration,
) -> io::Result<Result<Answer, String>> {
    stream.set_read_timeout(Some(limit))?;
    writeln!(&stream, "{}", question.word())?;
    let mut engine = BufReader::new(stream);
    let mut line = String::new();
    if engine.read_line(&mut line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(match serde_json::from_str(&line).map_err(io::Error::other)? {
        Reply::Status(status) => Ok(Answer { status, engine }),
        Reply::Refused { refused } => Err(refused),
    })
}

impl Answer {
    /// Waits until the engine's process is gone.
    pub(super) fn wait_for_end(mut self) -> Result<(), Failure> {
        // An error is the end as well, unless it is the time limit.
        let _ = self.engine.get_ref().set_read_timeout(Some(END_LIMIT));
        match self.engine.read_to_end(&mut Vec::new()) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let pid = self.status.pid;
                Err(Failure::new(
                    Exit::NoServer,
                    format!(
                        "the engine (pid {pid}) has not ended within {END_LIMIT:?}; see its log"
                    ),
                ))
            }
            _ => Ok(()),
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let meta = fs::symlink_metadata(path).ok()?;
    Some((meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec()))
}

/// The engine's side.
#[derive(Debug)]
pub(super) struct Control {
    listener: net::UnixListener,
    path: PathBuf,
    /// Device, inode and its time: what tells the socket from a successor's at the same path.
    identity: Option<(u64, u64, i64, i64)>,
    since: Instant,
    data_dir: PathBuf,
    durability: Durability,
}

impl Control {
    /// Listens for questions. To be called by the owner of the data directory only: what is at
    /// the path is a dead engine's.
    pub(super) fn listen(home: &Home, durability: Durability) -> Result<Self, Failure> {
        let path = home.admin_socket();
        let listen = || {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = net::UnixListener::bind(&path)?;
            // Until here the home directory alone keeps others out.
            fs::set_permissions(&path, fs::Permissions::from_mode(home.socket_mode()))?;
            Ok(listener)
        };

        let listener = listen().map_err(|error| {
            Failure::new(
                Exit::CannotCreate,
                format!("cannot listen on {}: {error}", path.display()),
            )
        })?;

        let identity = identity(&path);
        Ok(Self {
            listener,
            path,
            identity,
            since: Instant::now(),
            data_dir: home.data(),
            durability,
        })
    }

    /// Removes the socket. What cannot be removed is replaced by the next engine; if that one has
    /// started already, because somebody had removed the home, the socket there is its own.
    pub(super) fn remove(self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Answers questions until one is to stop; that connection is handed out.
    pub(super) async fn serve(&self, engine: &Engine) -> net::UnixStream {
        let mut askers = Askers::default();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    // What has come with the connection is read before another one may take its place.
                    Ok((stream, _)) => {
                        askers.admit(stream);
                        yield_now().await;
                    }
                    // Out of files, most likely: others must end first.
                    Err(_) => sleep(Duration::from_millis(100)).await,
                },
                Some(asked) = askers.reading.join_next() => {
                    // Whoever says nothing, or goes away, gets no answer.
                    if let Ok(Some(asker)) = asked
                        && let Ok(Some(stream)) = self.answer(asker, engine)
                    {
                        return stream;
                    }
                }
            }
        }
    }

    fn answer(&self, asker: Asker, engine: &Engine) -> io::Result<Option<net::UnixStream>> {
        let is_stop = asker.question.trim_end() == Question::Stop.word();
        let is_refused = is_stop && !asker.is_owner;
        let reply = match is_refused {
            true => Reply::Refused { refused: "only the engine's owner can stop it".to_owned() },
            false => Reply::Status(self.status(engine)),
        };
        let mut reply = serde_json::to_vec(&reply)?;
        reply.push(b'\n');
        // A socket to which nothing was sent before has room for it.
        asker.stream.try_write(&reply)?;
        Ok((is_stop && !is_refused).then_some(asker.stream))
    }

    fn status(&self, engine: &Engine) -> Status {
        let quiet = engine.quiet_time_left().unwrap_or_default();
        Status {
            running: true,
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            socket: engine.socket_path().map(PathBuf::from).unwrap_or_default(),
            data_dir: self.data_dir.clone(),
            durability: self.durability.to_string(),
            sessions: engine.sessions(),
            quiet_ms: u64::try_from(quiet.as_millis()).unwrap_or(u64::MAX),
            room: engine.disk_room().map(Room::new),
        }
    }
}

/// A connection, and what was asked over it.
#[derive(Debug)]
struct Asker {
    stream: net::UnixStream,
    question: String,
    is_owner: bool,
}

/// Connections over which nothing was asked yet. Each is read by itself, and has a time limit of its own.
/// When there are too many, the oldest ends. Root and the owner have places of their own: other users
/// cannot keep them out.
#[derive(Default)]
struct Askers {
    reading: JoinSet<Option<Asker>>,
    owners: VecDeque<AbortHandle>,
    others: VecDeque<AbortHandle>,
}

impl Askers {
    fn admit(&mut self, stream: net::UnixStream) {
        let Ok(user) = stream.peer_cred() else { return };
        let is_owner = is_owner(user.uid());
        let places = match is_owner {
            true => &mut self.owners,
            false => &mut self.others,
        };
        places.retain(|asker| !asker.is_finished());
        if places.len() >= MAX_ASKERS
            && let Some(oldest) = places.pop_front()
        {
            oldest.abort();
        }
        places.push_back(self.reading.spawn(async move {
            timeout(TALK_LIMIT, Asker::read(stream, is_owner)).await.ok()?.ok()
        }));
    }
}

impl Asker {
    async fn read(mut stream: net::UnixStream, is_owner: bool) -> io::Result<Self> {
        let mut question = String::new();
        let mut input = tokio::io::BufReader::new((&mut stream).take(LONGEST));
        input.read_line(&mut question).await?;
        Ok(Self { stream, question, is_owner })
    }
}
