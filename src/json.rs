//! Any JSON value, from an untrusted source.
//!
//! Not in scope: JSON with known fields (`serde`'s derive), and JSON-RPC (`protocol`).

use std::fmt;
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A [`Value`] deserialised from untrusted JSON.
///
/// `Value` itself treats an object whose only key is serde_json's private name for raw values as such a raw value: it
/// parses the string in it, with a new depth limit each time. A few kilobytes nested like this overflow the stack,
/// which ends the process. Here such an object stays an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Foreign(pub(crate) Value);

/// Parses one value, nested at most 127 levels deep.
///
/// # Errors
/// Invalid JSON, deeper nesting, invalid Unicode, or a number too large for 64 bits.
pub(crate) fn value(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).map(|Foreign(value)| value)
}

/// The same for an object; `null` is an empty one.
pub(crate) fn object(text: &str) -> Option<Map<String, Value>> {
    match value(text).ok()? {
        Value::Object(members) => Some(members),
        Value::Null => Some(Map::new()),
        _ => None,
    }
}

/// The same for a field; `null` is none.
pub(crate) fn field<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Ok(Option::deserialize(deserializer)?.map(|Foreign(value)| value))
}

impl Deref for Foreign {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Foreign {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Foreign, D::Error> {
        deserializer.deserialize_any(Any).map(Foreign)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Foreign(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((key, Foreign(value))) = members.next_entry()? {
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_what_serde_json_reads() {
        for text in [
            "null",
            "true",
            "-1",
            "18446744073709551615",
            "1.5",
            "-0",
            "1e3",
            r#""a\u0041""#,
            "[]",
            "{}",
            r#"{"a":[1,{"b":null}],"a":[2.5,"c"]}"#,
        ] {
            assert_eq!(
                value(text).unwrap(),
                serde_json::from_str::<Value>(text).unwrap(),
                "{text}"
            );
        }
        for text in [
            "",
            "1 2",
            "1e999",
            "NaN",
            "\"\\ud800\"",
            "{1:2}",
            &"[".repeat(200),
        ] {
            assert!(
                value(text).is_err() && serde_json::from_str::<Value>(text).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn the_private_key_of_raw_values_is_any_key() {
        let text = r#"{"$serde_json::private::RawValue":"[1]"}"#;
        assert_eq!(
            serde_json::from_str::<Value>(text).unwrap(),
            json!([1]),
            "this module is no longer needed"
        );
        assert_eq!(
            value(text).unwrap(),
            json!({"$serde_json::private::RawValue": "[1]"})
        );
    }
}
