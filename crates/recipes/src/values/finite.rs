//! Checks, before a value is written as JSON, that all its numbers can be represented.

use std::fmt;

use serde::ser::{
    self, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// A serializer that writes nothing, and fails at an infinite number or NaN.
#[derive(Clone, Copy, Debug)]
pub(super) struct FiniteCheck;

/// Why a value cannot be written as JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JsonError {
    /// An infinite number, or NaN.
    #[error("JSON has no number {0}; leave it out, or use another codec")]
    Number(String),
    /// An error from the value's own code.
    #[error("{0}")]
    Own(String),
}

impl ser::Error for JsonError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Own(message.to_string())
    }
}

/// Types that contain no floating-point number.
macro_rules! nothing_in {
    ($($method:ident($($of:ty),*);)*) => {
        $(fn $method(self, $(_: $of),*) -> Result<(), JsonError> {
            Ok(())
        })*
    };
}

/// Types with parts, each of which is checked.
macro_rules! parts_of {
    ($($method:ident($($of:ty),*);)*) => {
        $(fn $method(self, $(_: $of),*) -> Result<Self, JsonError> {
            Ok(self)
        })*
    };
}

impl Serializer for FiniteCheck {
    type Ok = ();
    type Error = JsonError;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    nothing_in! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    fn serialize_f32(self, number: f32) -> Result<(), JsonError> {
        self.serialize_f64(number.into())
    }

    fn serialize_f64(self, number: f64) -> Result<(), JsonError> {
        match number.is_finite() {
            true => Ok(()),
            false => Err(JsonError::Number(number.to_string())),
        }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), JsonError> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), JsonError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), JsonError> {
        value.serialize(self)
    }

    parts_of! {
        serialize_seq(Option<usize>);
        serialize_tuple(usize);
        serialize_tuple_struct(&'static str, usize);
        serialize_tuple_variant(&'static str, u32, &'static str, usize);
        serialize_map(Option<usize>);
        serialize_struct(&'static str, usize);
        serialize_struct_variant(&'static str, u32, &'static str, usize);
    }
}

/// The parts of a compound value.
macro_rules! each_of {
    ($($parts:ident: $method:ident $(, $name:ty)?;)*) => {
        $(impl $parts for FiniteCheck {
            type Ok = ();
            type Error = JsonError;

            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $(_: $name,)?
                value: &T,
            ) -> Result<(), JsonError> {
                value.serialize(*self)
            }

            fn end(self) -> Result<(), JsonError> {
                Ok(())
            }
        })*
    };
}

each_of! {
    SerializeSeq: serialize_element;
    SerializeTuple: serialize_element;
    SerializeTupleStruct: serialize_field;
    SerializeTupleVariant: serialize_field;
    SerializeStruct: serialize_field, &'static str;
    SerializeStructVariant: serialize_field, &'static str;
}

impl SerializeMap for FiniteCheck {
    type Ok = ();
    type Error = JsonError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), JsonError> {
        key.serialize(*self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        value.serialize(*self)
    }

    fn end(self) -> Result<(), JsonError> {
        Ok(())
    }
}
