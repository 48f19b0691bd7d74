//! URI templates of instances.

use lockkeeper_client::fails_for_good;
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The template of an instance's URI: text, and names in braces that are replaced by the instance's data. It is
/// Curator's, which any of its programs can read.
///
/// The names are `scheme` (`https` if there is a port for TLS, else `http`), `name` (of the service), `id`,
/// `address`, `port`, `ssl-port`, `registration-time-utc`, `service-type`, and `[` and `]` for braces. Any other
/// name is left out.
///
/// ```
/// use lockkeeper::{Instance, UriSpec};
///
/// let spec: UriSpec = "{scheme}://{address}:{port}/orders".parse()?;
/// let instance = Instance::new("web", "7").address("10.0.0.7").port(8080).uri_spec(spec);
/// assert_eq!(instance.uri().as_deref(), Some("http://10.0.0.7:8080/orders"));
/// # Ok::<(), lockkeeper::UriSpecError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UriSpec {
    #[serde(default)]
    parts: Vec<UriPart>,
}

/// A part of a [`UriSpec`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct UriPart {
    /// Text, or the name of a variable.
    pub value: String,
    /// Whether it is the name of a variable.
    pub variable: bool,
}

/// Why a text is not a [`UriSpec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriSpecError {
    /// A brace opens inside of braces.
    #[error("a name in braces contains a brace; write {{[}} for a brace that is text")]
    Nested,
    /// A brace closes outside of braces.
    #[error("a brace closes that was not opened; write {{]}} for a brace that is text")]
    NotOpen,
    /// A brace never closes.
    #[error("a brace is not closed")]
    NotClosed,
}

fails_for_good!(UriSpecError);

impl UriSpec {
    /// The parts, in order.
    pub fn parts(&self) -> &[UriPart] {
        &self.parts
    }

    /// The URI with the names replaced by their values.
    pub(super) fn build<'a>(&self, variable: impl Fn(&str) -> Option<Cow<'a, str>>) -> String {
        let mut uri = String::new();
        for part in &self.parts {
            match (part.variable, &*part.value) {
                (false, text) => uri.push_str(text),
                (true, "[") => uri.push('{'),
                (true, "]") => uri.push('}'),
                (true, name) => uri.push_str(&variable(name).unwrap_or_default()),
            }
        }
        uri
    }
}

impl FromStr for UriSpec {
    type Err = UriSpecError;

    fn from_str(text: &str) -> Result<Self, UriSpecError> {
        let mut parts = Vec::new();
        let mut add = |value: &str, variable| {
            if !value.is_empty() {
                let value = if variable { value.trim() } else { value };
                parts.push(UriPart { value: value.to_owned(), variable });
            }
        };

        let mut rest = text;
        let mut is_inside = false;
        while let Some(at) = rest.find(['{', '}']) {
            add(&rest[..at], is_inside);
            match (rest.as_bytes()[at], is_inside) {
                (b'{', true) => return Err(UriSpecError::Nested),
                (b'}', false) => return Err(UriSpecError::NotOpen),
                (brace, _) => is_inside = brace == b'{',
            }
            rest = &rest[at + 1..];
        }
        if is_inside {
            return Err(UriSpecError::NotClosed);
        }
        add(rest, false);
        Ok(Self { parts })
    }
}

/// Displays the text from which it can be parsed.
impl fmt::Display for UriSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part.variable {
                true => write!(f, "{{{}}}", part.value)?,
                false => {
                    for letter in part.value.chars() {
                        match letter {
                            '{' => f.write_str("{[}")?,
                            '}' => f.write_str("{]}")?,
                            other => f.write_char(other)?,
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> UriSpec {
        text.parse().unwrap()
    }

    #[test]
    fn braces_that_do_not_fit_are_named() {
        for (text, error) in [
            ("{a{b}", UriSpecError::Nested),
            ("a}b", UriSpecError::NotOpen),
            ("{a}}", UriSpecError::NotOpen),
            ("é{a", UriSpecError::NotClosed),
        ] {
            assert_eq!(text.parse::<UriSpec>(), Err(error), "{text}");
        }
    }

    #[test]
    fn its_text_is_read_as_the_same() {
        for text in ["", "{scheme}://{address}:{port}", "é{id}ü{[}x{]}"] {
            assert_eq!(spec(text).to_string(), text);
        }
        let odd = UriSpec { parts: vec![UriPart { value: "{}".into(), variable: false }] };
        let built = |spec: &UriSpec| spec.build(|_| None);
        assert_eq!(built(&spec(&odd.to_string())), built(&odd));
    }
}
