//! How a URI is made of an instance.

use std::fmt::{self, Write};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::discovery::instance::{Instance, ServiceType};

/// How the URI of an instance is made: text, and names in braces for which what the instance says is
/// put in. It is Curator's, which any of its programs can read.
///
/// The names are `scheme` (`https` if there is a port for TLS, else `http`), `name` (of the service),
/// `id`, `address`, `port`, `ssl-port`, `registration-time-utc`, `service-type`, and `[` and `]` for
/// braces. Any other name is left out.
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
    /// Text, or the name of what is put in.
    pub value: String,
    /// Whether it is a name.
    pub variable: bool,
}

/// Why a text is no [`UriSpec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriSpecError {
    /// A brace opens inside of braces.
    #[error("a name in braces contains a brace; write {{[}} for a brace that is text")]
    Nested,
    /// A brace closes outside of braces.
    #[error("a brace closes and none is open; write {{]}} for a brace that is text")]
    NotOpen,
    /// A brace never closes.
    #[error("a brace is not closed")]
    NotClosed,
}

impl UriSpec {
    /// The parts, in order.
    pub fn parts(&self) -> &[UriPart] {
        &self.parts
    }

    /// The URI of an instance.
    pub fn build(&self, instance: &Instance) -> String {
        let mut uri = String::new();
        for part in &self.parts {
            match part.variable {
                true => put_in(&mut uri, &part.value, instance),
                false => uri.push_str(&part.value),
            }
        }
        uri
    }
}

fn put_in(uri: &mut String, name: &str, instance: &Instance) {
    let number = |port: Option<u16>| port.map(|port| port.to_string()).unwrap_or_default();
    match name {
        "scheme" => uri.push_str(if instance.ssl_port.is_some() { "https" } else { "http" }),
        "name" => uri.push_str(&instance.service),
        "id" => uri.push_str(&instance.id),
        "address" => uri.push_str(instance.address.as_deref().unwrap_or_default()),
        "port" => uri.push_str(&number(instance.port)),
        "ssl-port" => uri.push_str(&number(instance.ssl_port)),
        "registration-time-utc" => uri.push_str(&instance.registration_time_utc.to_string()),
        "service-type" => uri.push_str(match instance.service_type {
            ServiceType::Dynamic => "dynamic",
            ServiceType::DynamicSequential => "dynamic_sequential",
            ServiceType::Static => "static",
            ServiceType::Permanent => "permanent",
        }),
        "[" => uri.push('{'),
        "]" => uri.push('}'),
        _ => {}
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

/// The text that it can be read from.
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
    fn everything_that_curator_puts_in_is_put_in() {
        let text = "{scheme} {name} {id} {address} {port} {ssl-port} {registration-time-utc} \
                    {service-type} {[}{]} { id } {other}{}.";
        let mut instance = Instance::new("web", "7");
        assert_eq!(spec(text).build(&instance), "http web 7    0 dynamic {} 7 .");
        instance = instance.address("h").port(80).ssl_port(443);
        instance.registration_time_utc = 5;
        instance.service_type = ServiceType::DynamicSequential;
        let uri = spec(text).build(&instance);
        assert_eq!(uri, "https web 7 h 80 443 5 dynamic_sequential {} 7 .");
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
        let instance = Instance::new("web", "7");
        assert_eq!(spec(&odd.to_string()).build(&instance), odd.build(&instance));
    }
}
