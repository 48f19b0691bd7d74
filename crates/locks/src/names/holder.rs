//! Who has a name.

use std::fmt;

use lockkeeper_client::SessionId;

use crate::owner_info::OwnerInfo;
use crate::token::FencingToken;

/// Who has one of the [`Names`](crate::Names).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NameHolder {
    /// What it says of itself; `None` if another library made the claim.
    pub info: Option<OwnerInfo>,
    /// The claim's token.
    pub token: FencingToken,
    /// The session that the claim lasts as long as.
    pub session: SessionId,
}

/// As in `backup.sh (pid 4711 on db1, nightly)`.
impl fmt::Display for NameHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.info {
            Some(info) => info.fmt(f),
            None => write!(f, "the session {}", self.session),
        }
    }
}
