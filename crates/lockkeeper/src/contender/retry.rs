//! Attempts to create a node, again and again while what fails is something passing.

use std::time::Duration;

use lockkeeper_client::{Error, ZnodePath};

use crate::error::AcquireError;

/// How often an attempt that came to nothing is made again.
const ATTEMPTS: u32 = 8;

/// The pause before the second attempt; it doubles from one to the next and is shortened by up to
/// half at random.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Why an attempt came to nothing.
pub(crate) enum Attempt {
    /// Something passing: another attempt, with another name, may do.
    Again,
    /// A node was missing and has been made: another attempt may do at once.
    Prepared,
    Failed(AcquireError),
}

impl Attempt {
    /// A request failed before the attempt had come to anything: there is no place to lose, so
    /// also the end of the session is something passing.
    pub(crate) fn at_entry(path: &ZnodePath, error: Error) -> Self {
        if error.is_session_expired() || error.is_retryable() && !error.is_unreachable() {
            Self::Again
        } else {
            Self::Failed(AcquireError::from_client(path, error))
        }
    }
}

/// Lets a moment pass before a request is made again that a server has refused for now. After a
/// lost connection there is no need: the request waits for the next one.
pub(crate) async fn breathe(error: &Error) {
    if error.code().is_some() {
        tokio::time::sleep(FIRST_PAUSE.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    }
}

/// Makes attempts until one succeeds or fails for good.
pub(crate) async fn retried<T, F>(
    path: &ZnodePath,
    attempt: impl Fn() -> F,
) -> Result<T, AcquireError>
where
    F: Future<Output = Result<T, Attempt>>,
{
    let mut pause = FIRST_PAUSE;
    for _ in 1..ATTEMPTS {
        match attempt().await {
            Ok(entered) => return Ok(entered),
            Err(Attempt::Failed(error)) => return Err(error),
            Err(Attempt::Prepared) => {}
            Err(Attempt::Again) => {
                tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                pause *= 2;
            }
        }
    }
    attempt().await.map_err(|attempt| match attempt {
        Attempt::Failed(error) => error,
        Attempt::Again | Attempt::Prepared => AcquireError::Unreachable { path: path.clone() },
    })
}
