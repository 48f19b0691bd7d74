//! The data of a service's instance.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::discovery::jackson;
use crate::discovery::uri_spec::UriSpec;
use crate::values::CodecError;

/// One of the programs that provide a service, with its own data.
///
/// ```
/// use lockkeeper::Instance;
///
/// let instance = Instance::new("web", "7").address("10.0.0.7").port(8080).weight(2).zone("b");
/// assert_eq!(instance.weight, 2);
/// assert!(instance.is_enabled);
/// ```
#[doc(alias = "ServiceInstance")]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Instance {
    /// The service's name.
    pub service: String,
    /// Identifies the instance in its service. It stays the same when the program is restarted.
    pub id: String,
    /// The name or address of its host.
    pub address: Option<String>,
    /// Its port.
    pub port: Option<u16>,
    /// Its port for TLS.
    pub ssl_port: Option<u16>,
    /// Any other data.
    pub payload: Option<Payload>,
    /// When it was registered, in milliseconds since 1970 by the wall clock of its machine, for display. 0 is
    /// replaced when it is registered.
    pub registration_time_utc: i64,
    /// How long its node exists.
    pub service_type: ServiceType,
    /// The template of its URI.
    pub uri_spec: Option<UriSpec>,
    /// Whether it takes calls. Unset for an instance that is about to end, or overloaded.
    pub is_enabled: bool,
    /// Its share of the calls, relative to the other instances of its service.
    pub weight: u32,
    /// Its zone: clients may prefer instances of their own zone.
    pub zone: Option<String>,
}

impl Instance {
    /// An instance that is enabled and has weight 1.
    ///
    /// `id` is the name of its node, and must be unique among the live instances of a service. With an id from the
    /// machine or the configuration, a restarted program replaces its earlier run at once.
    pub fn new(service: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            service: service.into(),
            id: id.into(),
            address: None,
            port: None,
            ssl_port: None,
            payload: None,
            registration_time_utc: 0,
            service_type: ServiceType::Dynamic,
            uri_spec: None,
            is_enabled: true,
            weight: 1,
            zone: None,
        }
    }

    lockkeeper_client::setters! {
        /// Sets the name or address of its host.
        #[must_use]
        pub fn address(self, address: impl Into<String>) => self.address = Some(address.into());

        /// Sets its port.
        #[must_use]
        pub fn port(self, port: u16) => self.port = Some(port);

        /// Sets its port for TLS.
        #[must_use]
        pub fn ssl_port(self, port: u16) => self.ssl_port = Some(port);

        /// Sets any other data.
        #[must_use]
        pub fn payload(self, payload: Payload) => self.payload = Some(payload);

        /// Sets the template of its URI.
        #[must_use]
        pub fn uri_spec(self, spec: UriSpec) => self.uri_spec = Some(spec);

        /// Sets another weight than 1.
        #[must_use]
        pub fn weight(self, weight: u32) => self.weight = weight;

        /// Sets its zone.
        #[must_use]
        pub fn zone(self, zone: impl Into<String>) => self.zone = Some(zone.into());
    }

    /// Its URI; `None` without a template.
    pub fn uri(&self) -> Option<String> {
        let spec = self.uri_spec.as_ref()?;
        Some(spec.build(|name| self.variable(name)))
    }

    /// The value of a name in a [`UriSpec`].
    fn variable(&self, name: &str) -> Option<Cow<'_, str>> {
        let number = |port: u16| Cow::from(port.to_string());
        match name {
            "scheme" if self.ssl_port.is_some() => Some("https".into()),
            "scheme" => Some("http".into()),
            "name" => Some((&*self.service).into()),
            "id" => Some((&*self.id).into()),
            "address" => self.address.as_deref().map(Cow::from),
            "port" => self.port.map(number),
            "ssl-port" => self.ssl_port.map(number),
            "registration-time-utc" => Some(self.registration_time_utc.to_string().into()),
            "service-type" => Some(self.service_type.name_in_uri().into()),
            _ => None,
        }
    }
}

/// How long the node of an instance exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ServiceType {
    /// Until the session of its program ends.
    #[default]
    Dynamic,
    /// Like `Dynamic`, with a number that the server appends to the id.
    DynamicSequential,
    /// Until it is deleted.
    Static,
    /// Until it is deleted.
    Permanent,
}

impl ServiceType {
    fn name_in_uri(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::DynamicSequential => "dynamic_sequential",
            Self::Static => "static",
            Self::Permanent => "permanent",
        }
    }
}

/// Any other data of an instance, as JSON.
///
/// Curator's programs read an object into the Java class that its first key, `@class`, names, and one
/// without that key into a map. An array makes them fail.
///
/// ```
/// use std::collections::BTreeMap;
/// use lockkeeper::Payload;
///
/// let payload = Payload::new(&BTreeMap::from([("version", "1.2")]))?;
/// assert_eq!(payload.json(), r#"{"version":"1.2"}"#);
/// let map: BTreeMap<String, String> = payload.read()?;
/// assert_eq!(map["version"], "1.2");
/// # Ok::<(), lockkeeper::CodecError>(())
/// ```
#[derive(Clone)]
pub struct Payload(Box<RawValue>);

impl Payload {
    /// A payload from a value.
    ///
    /// # Errors
    /// If the value cannot be written as JSON.
    pub fn new(value: &(impl Serialize + ?Sized)) -> Result<Self, CodecError> {
        Self::from_json(String::from_utf8(jackson::write(value)?)?)
    }

    /// A payload from JSON text. It is kept byte for byte.
    ///
    /// # Errors
    /// If it is not JSON.
    pub fn from_json(json: String) -> Result<Self, CodecError> {
        Ok(Self(RawValue::from_string(json)?))
    }

    pub(super) fn from_raw(json: &RawValue) -> Self {
        Self(json.to_owned())
    }

    pub(super) fn raw(&self) -> &RawValue {
        &self.0
    }

    /// Its JSON.
    pub fn json(&self) -> &str {
        self.0.get()
    }

    /// Parses the value.
    ///
    /// # Errors
    /// If it is not a value of this type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, CodecError> {
        Ok(serde_json::from_str(self.json())?)
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.json() == other.json()
    }
}

lockkeeper_client::impl_debug! {
    /// Only its length, because it may be long and secret.
    Payload, self => bytes: self.json().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_curator_puts_in_is_put_in() {
        let text = "{scheme} {name} {id} {address} {port} {ssl-port} {registration-time-utc} \
                    {service-type} {[}{]} { id } {other}{}.";
        let uri = |instance: &Instance| -> String {
            let spec: UriSpec = text.parse().unwrap();
            instance.clone().uri_spec(spec).uri().unwrap()
        };
        let mut instance = Instance::new("web", "7");
        assert_eq!(uri(&instance), "http web 7    0 dynamic {} 7 .");
        instance = instance.address("h").port(80).ssl_port(443);
        instance.registration_time_utc = 5;
        instance.service_type = ServiceType::DynamicSequential;
        assert_eq!(uri(&instance), "https web 7 h 80 443 5 dynamic_sequential {} 7 .");
    }
}
