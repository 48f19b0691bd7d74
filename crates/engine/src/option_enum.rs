//! Enums that are options of a command, each variant a word.

/// Makes an enum readable and printable by its words, with the error for a word that is none of them.
macro_rules! option_enum {
    ($name:ident, $unknown:ident: $message:literal { $( $variant:ident = $word:literal, )* }) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $( Self::$variant => $word, )*
                })
            }
        }

        #[doc = concat!("A word that names no [`", stringify!($name), "`].")]
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
        #[error($message)]
        pub struct $unknown(String);

        impl std::str::FromStr for $name {
            type Err = $unknown;

            fn from_str(word: &str) -> Result<Self, $unknown> {
                match word {
                    $( $word => Ok(Self::$variant), )*
                    other => Err($unknown(other.to_owned())),
                }
            }
        }
    };
}
pub(crate) use option_enum;
