//! The password hash in identities of the scheme `digest`.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use sha3::{Sha3_256, Sha3_384, Sha3_512};

/// The hash algorithm of passwords: ZooKeeper's `DigestAuthenticationProvider.digestAlg`, with Java's names.
///
/// Access control lists contain the hashes. With another algorithm, the owners of existing lists are not
/// recognized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DigestAlgorithm {
    /// `SHA1`, `SHA-1` or `SHA`.
    #[default]
    Sha1,
    /// `SHA-256`.
    Sha256,
    /// `SHA-384`.
    Sha384,
    /// `SHA-512`.
    Sha512,
    /// `SHA3-256`.
    Sha3_256,
    /// `SHA3-384`.
    Sha3_384,
    /// `SHA3-512`.
    Sha3_512,
}

/// A string is not the name of a [`DigestAlgorithm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use SHA1, SHA-256, SHA-384, SHA-512, SHA3-256, SHA3-384 or SHA3-512")]
pub struct UnknownDigestAlgorithm;

/// Java's name.
impl fmt::Display for DigestAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA-256",
            Self::Sha384 => "SHA-384",
            Self::Sha512 => "SHA-512",
            Self::Sha3_256 => "SHA3-256",
            Self::Sha3_384 => "SHA3-384",
            Self::Sha3_512 => "SHA3-512",
        })
    }
}

impl FromStr for DigestAlgorithm {
    type Err = UnknownDigestAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownDigestAlgorithm> {
        match name.to_ascii_uppercase().as_str() {
            "SHA1" | "SHA-1" | "SHA" => Ok(Self::Sha1),
            "SHA-256" => Ok(Self::Sha256),
            "SHA-384" => Ok(Self::Sha384),
            "SHA-512" => Ok(Self::Sha512),
            "SHA3-256" => Ok(Self::Sha3_256),
            "SHA3-384" => Ok(Self::Sha3_384),
            "SHA3-512" => Ok(Self::Sha3_512),
            _ => Err(UnknownDigestAlgorithm),
        }
    }
}

impl DigestAlgorithm {
    /// The id of these credentials: `user:base64(hash(user:password))`.
    pub(crate) fn id(self, credentials: &str) -> String {
        let user = credentials.split(':').next().unwrap_or_default();
        let bytes = credentials.as_bytes();
        let hash = match self {
            Self::Sha1 => encode(&Sha1::digest(bytes)),
            Self::Sha256 => encode(&Sha256::digest(bytes)),
            Self::Sha384 => encode(&Sha384::digest(bytes)),
            Self::Sha512 => encode(&Sha512::digest(bytes)),
            Self::Sha3_256 => encode(&Sha3_256::digest(bytes)),
            Self::Sha3_384 => encode(&Sha3_384::digest(bytes)),
            Self::Sha3_512 => encode(&Sha3_512::digest(bytes)),
        };
        format!("{user}:{hash}")
    }

    /// The length of a hash, in bytes.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 | Self::Sha3_256 => 32,
            Self::Sha384 | Self::Sha3_384 => 48,
            Self::Sha512 | Self::Sha3_512 => 64,
        }
    }
}

fn encode(hash: &[u8]) -> String {
    STANDARD.encode(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of `openssl dgst` and of ZooKeeper's `DigestAuthenticationProvider`; the first one is from
    /// ZooKeeper's documentation of the super user.
    #[test]
    fn digests_have_zookeepers_format() {
        for (name, hash) in [
            ("SHA1", "D/InIHSb7yEEbrWz8b9l71RjZJU="),
            ("SHA-256", "wjySwxg860UATFtciuZ1lpzrCHrPeov6SPu/ZD56uig="),
            ("SHA-384", "FA/2SgoedA21NnGcUl5C1HBsMwuibAPXlAq/FqXTuUQPExUJgxpf8gWeD4eOupjP"),
            (
                "SHA-512",
                "cMAGk13FCMtJkaVQImGEKhjqoGELCiVjYdIhiD8stB1FnIpdGeFvKwAHh5mf4tUYmBR2ZY9181dZTXEHMlkVhg==",
            ),
            ("SHA3-256", "cRy/KPYuDpW/dtsepniTMpuiuupnWgdU9txltIfv3hA="),
            ("SHA3-384", "a3efqz9Fj+qRHgJMpOPAzqpMP86/aPKowwZfSsm/gM+qBf87ZmeQYtueLs53P8Rw"),
            (
                "SHA3-512",
                "AdTSPtJYC1bEo1Z0UG5z1VXkw2AEUReEjF0RV0jap6VKcDva8ZPEO/WxrOy888alfiJyM5cm5BKhrI4X/YFcTg==",
            ),
        ] {
            let algorithm: DigestAlgorithm = name.parse().unwrap();
            assert_eq!(algorithm.id("super:test"), format!("super:{hash}"), "{name}");
            assert_eq!(STANDARD.decode(hash).unwrap().len(), algorithm.len(), "{name}");
            assert_eq!(algorithm.to_string(), name);
        }
        assert_eq!("sha-1".parse(), Ok(DigestAlgorithm::Sha1));
        assert_eq!("MD5".parse::<DigestAlgorithm>(), Err(UnknownDigestAlgorithm));
    }
}
