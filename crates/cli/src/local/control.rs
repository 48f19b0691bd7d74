//! The control socket of the machine-local engine: its status, and requests to stop.
//!
//! A request is one line, and the reply is one line of JSON. After `stop`, the engine keeps the connection open until
//! its process exits.

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

use super::disk_space::DiskSpace;
use super::home::Home;
use crate::shared::exit::{Exit, Failure};

/// How long the other side may take to send a request or a reply.
const TALK_LIMIT: Duration = Duration::from_secs(5);

/// How long an engine may take to stop.
const END_LIMIT: Duration = Duration::from_secs(60);

/// How many connections without a request are kept: of the owner and root, and of other users.
const MAX_ASKERS: usize = 64;

/// The longest request, in bytes.
const MAX_BYTES: u64 = 64;

/// The engine's status. The field names are stable: `local status --json` prints them.
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
    /// How long no session can start yet.
    #[serde(default)]
    pub(super) quiet_ms: u64,
    #[serde(flatten)]
    pub(super) room: Option<DiskSpace>,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlRequest {
    Status,
    Stop,
}

impl ControlRequest {
    fn word(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Stop => "stop",
        }
    }
}

/// A reply.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Reply {
    Refused { refused: String },
    Status(Status),
}

/// A reply, and its connection.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: Status,
    engine: BufReader<UnixStream>,
}

/// Sends a request to the engine; `None` if no engine is running.
pub(super) fn ask(home: &Home, question: ControlRequest) -> Result<Option<Answer>, Failure> {
    ask_within(home, question, TALK_LIMIT)
}

/// Like [`ask`], with a shorter time limit than [`TALK_LIMIT`].
pub(super) fn ask_within(
    home: &Home,
    question: ControlRequest,
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
        // The engine was about to end when it was asked.
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
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("no reply for {limit:?}"),
        _ => error.to_string(),
    };
    let message = format!("the engine behind {} does not answer: {why}", socket.display());
    let advice = format!(
        "try again, and see its log ({}); kill its process only if its clients get no replies either",
        home.log().display()
    );
    Failure::new(Exit::NoServer, message).advise(&advice)
}

/// Sends a request and reads the reply.
fn talk(
    stream: UnixStream,
    question: ControlRequest,
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
    /// Waits until the engine's process has exited.
    pub(super) fn wait_for_end(mut self) -> Result<(), Failure> {
        // Any error other than a timeout also means that the process has exited.
        let _ = self.engine.get_ref().set_read_timeout(Some(END_LIMIT));
        match self.engine.read_to_end(&mut Vec::new()) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let pid = self.status.pid;
                Err(Failure::new(
                    Exit::NoServer,
                    format!(
                        "the engine (pid {pid}) did not stop within {END_LIMIT:?}; see its log"
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

/// The engine's side of the control socket.
#[derive(Debug)]
pub(super) struct Control {
    listener: net::UnixListener,
    path: PathBuf,
    /// Device, inode and its times: they distinguish the socket from a successor's at the same path.
    identity: Option<(u64, u64, i64, i64)>,
    since: Instant,
    data_dir: PathBuf,
    durability: Durability,
}

impl Control {
    /// Listens for requests. Only the owner of the data directory may call this: a socket at the path then belongs to a
    /// dead engine.
    pub(super) fn listen(home: &Home, durability: Durability) -> Result<Self, Failure> {
        let path = home.admin_socket();
        let listen = || {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = net::UnixListener::bind(&path)?;
            // Until here, only the permissions of the home directory keep other users out.
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

    /// Removes the socket. If it cannot be removed, the next engine replaces it. If the home was removed and the next
    /// engine has already started, the socket at the path is the next engine's and stays.
    pub(super) fn remove(self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Answers requests until one asks to stop; returns its connection.
    pub(super) async fn serve(&self, engine: &Engine) -> net::UnixStream {
        let mut askers = Askers::default();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    // Read data that arrived with the connection before another connection may replace it.
                    Ok((stream, _)) => {
                        askers.admit(stream);
                        yield_now().await;
                    }
                    // Most likely there are too many open files: wait until others are closed.
                    Err(_) => sleep(Duration::from_millis(100)).await,
                },
                Some(asked) = askers.reading.join_next() => {
                    // A connection without a request gets no reply.
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
        let is_stop = asker.question.trim_end() == ControlRequest::Stop.word();
        let is_refused = is_stop && !asker.is_owner;
        let reply = match is_refused {
            true => Reply::Refused { refused: "only the engine's owner can stop it".to_owned() },
            false => Reply::Status(self.status(engine)),
        };
        let mut reply = serde_json::to_vec(&reply)?;
        reply.push(b'\n');
        // Nothing was sent over this socket before, so its buffer has space.
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
            room: engine.disk_room().map(DiskSpace::new),
        }
    }
}

/// A connection, and its request.
#[derive(Debug)]
struct Asker {
    stream: net::UnixStream,
    question: String,
    is_owner: bool,
}

/// Connections without a request so far. Each one is read separately, with its own time limit. If there are too many,
/// the oldest is closed. Root and the owner have a separate limit, so that other users cannot keep them out.
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
        let mut input = tokio::io::BufReader::new((&mut stream).take(MAX_BYTES));
        input.read_line(&mut question).await?;
        Ok(Self { stream, question, is_owner })
    }
}
