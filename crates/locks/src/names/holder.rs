//! The holder of a name.

use std::fmt;

use lockkeeper_client::SessionId;

use crate::owner_info::OwnerInfo;
use crate::token::FencingToken;

/// The holder of one of the [`Names`](crate::Names).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NameHolder {
    /// The description of its program; `None` if another library created the claim.
    pub info: Option<OwnerInfo>,
    /// The token of the claim.
    pub token: FencingToken,
    /// The session of the claim. The claim ends with it.
    pub session: SessionId,
}

/// Shown like `backup.sh (pid 4711 on db1, nightly)`.
impl fmt::Display for NameHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.info {
            Some(info) => info.fmt(f),
            None => write!(f, "the session {}", self.session),
        }
    }
}
