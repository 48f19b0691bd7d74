//! Enums that are options of a command; each variant has a word.

/// Implements parsing and printing of an enum by its words, with an error for unknown words.
macro_rules! option_enum {
    ($name:ident, $unknown:ident: $message:literal { $( $variant:ident = $word:literal, )* }) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $( Self::$variant => $word, )*
                })
            }
        }

        #[doc = concat!("A word that is not a value of [`", stringify!($name), "`].")]
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
