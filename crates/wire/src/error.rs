//! Error codes of the protocol, and decoding errors.

use std::fmt;

/// Why bytes are not a valid message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end before the message does.
    #[error("the message is truncated")]
    Truncated,
    /// A length below -1.
    #[error("invalid length {0}")]
    NegativeLength(i32),
    /// A string that is not UTF-8.
    #[error("a string is not valid UTF-8")]
    InvalidUtf8,
    /// An unknown op code.
    #[error("unknown op code {0}")]
    UnknownOp(i32),
    /// An op code that is not allowed at this place, such as a read in a `multi`.
    #[error("op code {0} is not allowed here")]
    MisplacedOp(i32),
    /// A number that is not a valid event, state or kind.
    #[error("{0} is not a valid {1}")]
    UnknownValue(i32, &'static str),
}

macro_rules! error_codes {
    ($( $(#[$doc:meta])* $name:ident = $code:literal, $text:literal; )*) => {
        /// An error code in a server's reply.
        ///
        /// Codes that this version does not know become [`ErrorCode::Other`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $( $(#[$doc])* $name, )*
            /// A code that this version does not know.
            Other(i32),
        }

        impl ErrorCode {
            /// The number on the wire; never 0.
            pub fn code(self) -> i32 {
                match self {
                    $( Self::$name => $code, )*
                    Self::Other(code) => code,
                }
            }

            /// The error with this number, or `None` for 0, which means success.
            pub fn from_code(code: i32) -> Option<Self> {
                match code {
                    0 => None,
                    $( $code => Some(Self::$name), )*
                    other => Some(Self::Other(other)),
                }
            }
        }

        impl fmt::Display for ErrorCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $( Self::$name => f.write_str($text), )*
                    Self::Other(code) => write!(f, "error {code}"),
                }
            }
        }
    };
}

error_codes! {
    /// Something failed inside the server.
    SystemError = -1, "system error";
    /// In a failed `multi`: the operation was not tried, because an earlier one failed.
    RuntimeInconsistency = -2, "not tried, because an earlier operation failed";
    /// The server's data is inconsistent.
    DataInconsistency = -3, "data inconsistency";
    /// The connection was lost.
    ConnectionLoss = -4, "connection loss";
    /// The server could not read the request.
    MarshallingError = -5, "the server could not read the request";
    /// The server does not know the operation.
    Unimplemented = -6, "the server does not know this operation";
    /// The operation took too long.
    OperationTimeout = -7, "operation timeout";
    /// An argument is invalid.
    BadArguments = -8, "bad arguments";
    /// A reconfiguration names a configuration that is not the current one.
    NewConfigNoQuorum = -13, "no quorum of the new configuration";
    /// Another reconfiguration is in progress.
    ReconfigInProgress = -14, "a reconfiguration is in progress";
    /// The node does not exist.
    NoNode = -101, "no such node";
    /// The session lacks the permission.
    NoAuth = -102, "not permitted";
    /// The version of the node is not the expected one.
    BadVersion = -103, "the version of the node is not the expected one";
    /// The parent is ephemeral.
    NoChildrenForEphemerals = -108, "an ephemeral node cannot have children";
    /// The node already exists.
    NodeExists = -110, "the node already exists";
    /// The node has children.
    NotEmpty = -111, "the node has children";
    /// The session has expired.
    SessionExpired = -112, "the session has expired";
    /// The watch could not be set.
    InvalidCallback = -113, "invalid callback";
    /// The access control list is empty or malformed.
    InvalidAcl = -114, "invalid access control list";
    /// The credentials were refused.
    AuthFailed = -115, "authentication failed";
    /// Another server serves the session now.
    SessionMoved = -118, "the session moved to another server";
    /// The server is currently read-only.
    NotReadOnly = -119, "the server is read-only";
    /// A local session cannot own ephemeral nodes.
    EphemeralOnLocalSession = -120, "ephemeral node on a local session";
    /// The watch to remove does not exist.
    NoWatcher = -121, "no such watch";
    /// Reconfiguration is disabled on the server.
    ReconfigDisabled = -123, "reconfiguration is disabled";
    /// The server requires SASL authentication.
    SessionClosedRequireSaslAuth = -124, "the server requires SASL authentication";
    /// A quota would be exceeded.
    QuotaExceeded = -125, "quota exceeded";
    /// The server is overloaded and rejects requests.
    ThrottledOp = -127, "the server is overloaded and throttles requests";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_both_ways() {
        for code in -130..0 {
            assert_eq!(ErrorCode::from_code(code).map(ErrorCode::code), Some(code));
        }
        assert_eq!(ErrorCode::from_code(0), None);
    }
}
