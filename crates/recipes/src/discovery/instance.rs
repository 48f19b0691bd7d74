//! What an instance of a service says of itself.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::discovery::jackson;
use crate::discovery::uri_spec::UriSpec;
use crate::values::CodecError;

/// One of the programs that provide a service, as it says of itself.
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
    /// What tells it from the others of its service, and stays the same when the program is started
    /// again.
    pub id: String,
    /// The name or address of its host.
    pub address: Option<String>,
    /// Its port.
    pub port: Option<u16>,
    /// Its port for TLS.
    pub ssl_port: Option<u16>,
    /// Whatever else it says.
    pub payload: Option<Payload>,
    /// When it was registered, in milliseconds since 1970 by the wall clock of its machine: for people
    /// to read. 0 is filled in when it is registered.
    pub registration_time_utc: i64,
    /// How its node lives.
    pub service_type: ServiceType,
    /// How its URI is made.
    pub uri_spec: Option<UriSpec>,
    /// Whether it is to be called. One that is about to end, or overloaded, is not.
    pub is_enabled: bool,
    /// How many calls it gets, compared with the others of its service.
    pub weight: u32,
    /// Where it is: clients may prefer those of their own zone.
    pub zone: Option<String>,
}

impl Instance {
    /// An instance that is enabled and has weight 1.
    ///
    /// `id` is the name of its node, and no two instances of a service that live at a time may have the
    /// same one. With one that the machine or the configuration gives, a program that is started again
    /// takes the place of its earlier life at once.
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
        /// With the name or address of its host.
        #[must_use]
        pub fn address(self, address: impl Into<String>) => self.address = Some(address.into());

        /// With a port.
        #[must_use]
        pub fn port(self, port: u16) => self.port = Some(port);

        /// With a port for TLS.
        #[must_use]
        pub fn ssl_port(self, port: u16) => self.ssl_port = Some(port);

        /// With whatever else it says.
        #[must_use]
        pub fn payload(self, payload: Payload) => self.payload = Some(payload);

        /// With a form for its URI.
        #[must_use]
        pub fn uri_spec(self, spec: UriSpec) => self.uri_spec = Some(spec);

        /// With another weight than 1.
        #[must_use]
        pub fn weight(self, weight: u32) => self.weight = weight;

        /// With a zone.
        #[must_use]
        pub fn zone(self, zone: impl Into<String>) => self.zone = Some(zone.into());
    }

    /// Its URI; `None` if it does not say how that is made.
    pub fn uri(&self) -> Option<String> {
        let spec = self.uri_spec.as_ref()?;
        Some(spec.build(|name| self.variable(name)))
    }

    /// What is put in for a name of a [`UriSpec`].
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

/// How the node of an instance lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ServiceType {
    /// With the session of its program.
    #[default]
    Dynamic,
    /// The same, with a number that the server appends to the id.
    DynamicSequential,
    /// Until somebody deletes it.
    Static,
    /// Until somebody deletes it.
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

/// Whatever an instance says of itself besides: any JSON.
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
    /// A payload that says what a value does.
    ///
    /// # Errors
    /// If the value cannot be written as JSON.
    pub fn new(value: &(impl Serialize + ?Sized)) -> Result<Self, CodecError> {
        Self::from_json(String::from_utf8(jackson::write(value)?)?)
    }

    /// A payload that is JSON already. It is kept as it is, to the byte.
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

    /// Its value.
    ///
    /// # Errors
    /// If it is not one of this type.
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
    /// Its length: it may be long, and secret.
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
