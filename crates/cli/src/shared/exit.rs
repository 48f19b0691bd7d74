//! Exit codes, and the errors that cause them. `docs/commands.md` has the table.
//!
//! Otherwise `run` exits with the code of its command. The codes 64 to 78 follow `sysexits.h`.

use std::io::ErrorKind;
use std::{fmt, io};

use lockkeeper::{
    AcquireError, BarrierError, BuildError, CacheError, ConnectError, Error, ErrorCode, GroupError,
    PoolError, PresenceError, RegisterError, ServiceError, SetPermitsError, TransactionError,
    WorkerIdError,
};
use lockkeeper_engine::{EngineError, StartError, StorageError};

/// The exit codes of lockkeeper itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// A test iterates over all of them.
#[cfg_attr(test, derive(clap::ValueEnum))]
#[repr(u8)]
pub(crate) enum Exit {
    Ok = 0,
    No = 1,
    Usage = 64,
    Data = 65,
    Taken = 69,
    Bug = 70,
    System = 71,
    CannotCreate = 73,
    Disk = 74,
    NoServer = 75,
    NoPermission = 77,
    Config = 78,
    Lost = 79,
    Overran = 124,
    CannotExecute = 126,
    NotFound = 127,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

/// The exit code for a process that was terminated by a signal, as shells report it.
pub(crate) fn signal_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// A one-line error message for the user, with the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self::with_code(exit.code(), message)
    }

    pub(crate) fn with_code(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// The failure of a recipe. The exit code follows from its cause, or else from whether the error is transient.
    pub(crate) fn of_recipe<E: lockkeeper::Failure + 'static>(error: &E) -> Self {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        let mut exit = if error.is_retryable() { Exit::NoServer } else { Exit::Data };
        while let Some(known) = cause {
            exit = exit_of_cause(known).unwrap_or(exit);
            cause = known.source();
        }
        Self::new(exit, error.to_string())
    }

    /// Prepends the subject of the failure.
    pub(crate) fn about(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Replaces the message.
    pub(crate) fn instead(self, message: String) -> Self {
        Self { message, ..self }
    }

    /// Appends advice.
    pub(crate) fn advise(mut self, advice: &str) -> Self {
        self.message = format!("{}; {advice}", self.message);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The failure if the system cannot create a process.
pub(crate) fn no_process(error: io::Error) -> Failure {
    Failure::new(Exit::System, format!("cannot create a process: {error}"))
}

/// The failure if signal handlers cannot be installed.
pub(crate) fn no_signals(error: io::Error) -> Failure {
    Failure::new(Exit::System, format!("cannot install signal handlers: {error}"))
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let exit = match &error {
            ConnectError::NoTls
            | ConnectError::ConnectString(_)
            | ConnectError::OutOfRange { .. }
            | ConnectError::TimeoutTooShort { .. } => Exit::Usage,
            ConnectError::AuthFailed => Exit::NoPermission,
            ConnectError::Untrusted(_) => Exit::Config,
            _ => Exit::NoServer,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        Self::new(Exit::Usage, error.to_string())
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        Self::new(exit_of_acquire(&error), error.to_string())
    }
}

fn exit_of_acquire(error: &AcquireError) -> Exit {
    match error {
        AcquireError::Timeout { is_connected: true, .. } => Exit::No,
        AcquireError::Foreign { .. }
        | AcquireError::IsNode { .. }
        | AcquireError::NotEphemeral { .. }
        | AcquireError::Exhausted { .. }
        | AcquireError::OtherPermits { .. }
        | AcquireError::BadPermits { .. } => Exit::Data,
        AcquireError::TooMany { .. } => Exit::Usage,
        AcquireError::LeaseTooShort { .. } => Exit::NoServer,
        AcquireError::Servers { source: ServiceError::NotOne { .. }, .. } => Exit::Config,
        AcquireError::Client { source, .. } => exit_of(source),
        AcquireError::Refused { source, .. } => exit_of_transaction(source),
        _ => Exit::NoServer,
    }
}

fn exit_of_transaction(error: &TransactionError) -> Exit {
    match error {
        TransactionError::Failed { code, .. } => exit_of_code(Some(*code)),
        TransactionError::Request(error) => exit_of(error),
        _ => Exit::Data,
    }
}

impl From<SetPermitsError> for Failure {
    fn from(error: SetPermitsError) -> Self {
        let exit = match &error {
            SetPermitsError::Client(source) => exit_of(source),
            SetPermitsError::Fixed { .. } => Exit::Data,
            _ => Exit::Usage,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(exit_of(&error), error.to_string())
    }
}

fn exit_of(error: &Error) -> Exit {
    exit_of_code(error.code())
}

fn exit_of_code(code: Option<ErrorCode>) -> Exit {
    match code {
        Some(ErrorCode::NoAuth | ErrorCode::AuthFailed) => Exit::NoPermission,
        Some(ErrorCode::InvalidAcl) => Exit::Usage,
        Some(ErrorCode::QuotaExceeded) => Exit::CannotCreate,
        Some(_) => Exit::Data,
        None => Exit::NoServer,
    }
}

/// The exit code for an error of a recipe or for its cause; `None` if the error does not determine it.
fn exit_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    if let Some(client) = cause.downcast_ref() {
        return Some(exit_of(client));
    }
    if let Some(acquire) = cause.downcast_ref() {
        return Some(exit_of_acquire(acquire));
    }

    // The errors below often replace their inner error in the chain of causes, so look inside.
    if let Some(refused) = cause.downcast_ref::<TransactionError>() {
        return Some(exit_of_transaction(refused));
    }
    match cause.downcast_ref::<PresenceError>() {
        Some(PresenceError::Refused(refused)) => return exit_of_cause(refused),
        Some(PresenceError::Request(error)) => return Some(exit_of(error)),
        Some(PresenceError::Path(_) | PresenceError::Reserved(_)) => return Some(Exit::Usage),
        _ => {}
    }
    match cause.downcast_ref::<CacheError>() {
        Some(CacheError::Request(error)) => return Some(exit_of(error)),
        Some(CacheError::Unreadable { .. }) => return Some(Exit::NoPermission),
        Some(CacheError::Path(_) | CacheError::Reserved(_)) => return Some(Exit::Usage),
        _ => {}
    }
    match cause.downcast_ref::<RegisterError>() {
        Some(RegisterError::Presence(error)) => return exit_of_cause(error),
        Some(RegisterError::Path(_) | RegisterError::Reserved(_)) => return Some(Exit::Usage),
        _ => {}
    }
    match cause.downcast_ref::<WorkerIdError>() {
        Some(WorkerIdError::Acquire(error)) => return Some(exit_of_acquire(error)),
        Some(WorkerIdError::Place(_)) => return Some(Exit::Usage),
        _ => {}
    }

    let is_misused =
        matches!(
            cause.downcast_ref(),
            Some(GroupError::Path(_) | GroupError::Reserved(_) | GroupError::Id { .. })
        ) || matches!(
            cause.downcast_ref(),
            Some(
                BarrierError::Path(_)
                    | BarrierError::Reserved(_)
                    | BarrierError::Place(_)
                    | BarrierError::Name { .. }
                    | BarrierError::Nobody
            )
        ) || matches!(cause.downcast_ref(), Some(PoolError::Path(_) | PoolError::Reserved(_)));
    is_misused.then_some(Exit::Usage)
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let exit = match &error {
            StartError::PortTaken { .. } | StartError::SocketInUse { .. } => Exit::Taken,
            // The machine may get it later.
            StartError::Listen { source, .. } if source.kind() == ErrorKind::AddrNotAvailable => {
                Exit::Taken
            }
            StartError::NotASocket { .. } | StartError::Socket { .. } => Exit::CannotCreate,
            StartError::Storage(storage) => exit_of_storage(storage),
            StartError::NewerRecord { .. } => Exit::Data,
            StartError::Engine(EngineError::Panicked) => Exit::Bug,
            StartError::System { .. } => Exit::System,
            StartError::Engine(_) => Exit::Disk,
            _ => Exit::Usage,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let exit = match &error {
            EngineError::Panicked => Exit::Bug,
            _ => Exit::Disk,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        Self::new(exit_of_storage(&error), error.to_string())
    }
}

fn exit_of_storage(error: &StorageError) -> Exit {
    match error {
        StorageError::NoDirectory { .. } | StorageError::NoData { .. } => Exit::Usage,
        StorageError::InUse { .. } => Exit::Taken,
        StorageError::Newer { .. } | StorageError::Damaged { .. } => Exit::Data,
        StorageError::NotADirectory { .. }
        | StorageError::NotCreated { .. }
        | StorageError::NotWritable { .. }
        | StorageError::Exists { .. }
        | StorageError::NoParent { .. }
        | StorageError::Within { .. }
        | StorageError::Foreign { .. }
        | StorageError::MountPoint { .. }
        | StorageError::Backup { .. }
        | StorageError::Untrusted { .. }
        | StorageError::ZooKeeper { .. } => Exit::CannotCreate,
        _ => Exit::Disk,
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_exit_code_has_a_row_in_the_table() {
        let page = include_str!("../../../../docs/commands.md");
        let rows: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("| ")).collect();
        for exit in Exit::value_variants() {
            let code = format!("{} |", exit.code());
            assert_eq!(rows.iter().filter(|row| row.starts_with(&code)).count(), 1, "{exit:?}");
        }
    }

    const ADMINISTRATION: &str = include_str!("../../../../docs/administration.md");

    #[test]
    fn every_exit_code_has_a_heading_for_administrators() {
        let codes = Exit::value_variants().iter().map(|exit| exit.code().to_string());
        for code in codes.chain(["128 + n".to_owned()]) {
            let heading = format!("### {code}");
            assert!(ADMINISTRATION.lines().any(|line| line == heading), "{heading}");
        }
    }

    #[test]
    fn every_error_of_the_engine_is_explained_to_administrators() {
        let sources = [
            include_str!("../../../engine/src/error.rs"),
            include_str!("../../../engine/src/storage/error.rs"),
        ];
        let mut variants = 0;
        for source in sources {
            let errors =
                source.split("\npub enum ").skip(1).filter_map(|it| it.split("\n}").next());
            let lines = errors.flat_map(|body| body.lines().skip(1));
            // A variant is indented once, and what belongs to it twice.
            let names = lines.filter_map(|line| line.strip_prefix("    "));
            for name in names.filter(|name| name.starts_with(char::is_uppercase)) {
                let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap();
                assert!(ADMINISTRATION.contains(&format!("`{name}`")), "{name}");
                variants += 1;
            }
        }
        assert!(variants > 30, "{variants}");
    }
}
