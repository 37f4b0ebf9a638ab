//! Types for the values in objects, borrowed from the JSON text.
//!
//! Kubernetes writes `null` for some empty lists and times, so each type accepts `null` as its empty value.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A string. The string is borrowed from the JSON text if the text has no escapes. `null` is read as the empty string.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TextValue<'a>(pub(crate) Cow<'a, str>);

impl Deref for TextValue<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TextValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

struct TextVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for TextVisitor<'a> {
    type Value = TextValue<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<TextValue<'a>, E> {
        Ok(TextValue(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<TextValue<'a>, E> {
        Ok(TextValue(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E: Error>(self) -> Result<TextValue<'a>, E> {
        Ok(TextValue::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for TextValue<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor(PhantomData))
    }
}

/// A string or a whole number, such as a port, percentage or quantity. The value is printed with its original text.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextOrNumber<'a>(TextValue<'a>);

impl fmt::Display for TextOrNumber<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for TextOrNumber<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Either<'a> {
            type Value = TextOrNumber<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a number")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                TextVisitor(PhantomData).visit_borrowed_str(text).map(TextOrNumber)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                TextVisitor(PhantomData).visit_str(text).map(TextOrNumber)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Either(PhantomData))
    }
}

/// A resource quantity in the canonical form, in which kube-apiserver writes and prints quantities.
///
/// `None` is a missing quantity, which is printed as `0`, like the zero quantity.
pub(crate) struct Quantity<'a>(pub(crate) Option<&'a TextOrNumber<'a>>);

impl fmt::Display for Quantity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(quantity) => fmt::Display::fmt(quantity, f),
            None => f.write_str("0"),
        }
    }
}

/// A list. `null` is read as the empty list.
#[derive(Debug, Clone)]
pub(crate) struct ListValue<T>(Vec<T>);

impl<T> Default for ListValue<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Deref for ListValue<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ListValue<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<Vec<T>>::deserialize(deserializer).map(|list| Self(list.unwrap_or_default()))
    }
}

/// A map in the order of its keys. `null` is read as the empty map.
#[derive(Debug, Clone)]
pub(crate) struct Map<'a, V>(BTreeMap<TextValue<'a>, V>);

/// Labels, annotations, or a label selector that has only equality requirements.
pub(crate) type Labels<'a> = Map<'a, TextValue<'a>>;

impl<V> Default for Map<'_, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V> Map<'_, V> {
    pub(crate) fn get(&self, key: &str) -> Option<&V> {
        self.0.iter().find(|(name, _)| &***name == key).map(|(_, value)| value)
    }

    /// Iterates over keys and values in the order of the keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for Map<'a, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(|map| Self(map.unwrap_or_default()))
    }
}

/// Declares structs for parts of objects. Each field has its JSON name, and defaults to the empty value of its type.
macro_rules! parts {
    ($($(#[$meta:meta])* struct $name:ident<$life:lifetime> {
        $(#[$first_meta:meta])* $first:ident: $first_type:ty $(, $(#[$field_meta:meta])* $field:ident: $type:ty)* $(,)?
    })*) => {$(
        $(#[$meta])*
        #[derive(Default, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub(super) struct $name<$life> {
            #[serde(borrow)]
            $(#[$first_meta])*
            pub(super) $first: $first_type,
            $($(#[$field_meta])* pub(super) $field: $type,)*
        }
    )*};
    ($($(#[$meta:meta])* struct $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Default, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub(super) struct $name {
            $($(#[$field_meta])* pub(super) $field: $type,)*
        }
    )*};
}
pub(crate) use parts;

/// Displays the values with a separator between them.
pub(crate) struct JoinedTexts<'a, I>(pub(crate) &'a str, pub(crate) I);

impl<I> fmt::Display for JoinedTexts<'_, I>
where
    I: IntoIterator + Clone,
    I::Item: fmt::Display,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.1.clone().into_iter().enumerate() {
            if index > 0 {
                f.write_str(self.0)?;
            }
            fmt::Display::fmt(&item, f)?;
        }
        Ok(())
    }
}

/// Formats the first items of a list with a separator between them. If there are more items, the text ends with the
/// number of the remaining items.
pub(crate) fn first_and_more<T: fmt::Display>(items: &[T], limit: usize, separator: &str, empty: &str) -> String {
    let shown = JoinedTexts(separator, items.iter().take(limit)).to_string();
    if items.len() > limit {
        format!("{shown} + {} more...", items.len() - limit)
    } else if shown.is_empty() {
        empty.to_owned()
    } else {
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_field_of_an_object_prints_empty_and_json_escapes_are_decoded() {
        assert_eq!(&*serde_json::from_str::<TextValue<'_>>("null").unwrap(), "");
        assert_eq!(&*serde_json::from_str::<TextValue<'_>>(r#""a\nb""#).unwrap(), "a\nb");
        assert!(matches!(serde_json::from_str::<TextValue<'_>>(r#""a""#).unwrap().0, Cow::Borrowed("a")));
        assert!(serde_json::from_str::<TextValue<'_>>("1").is_err());
        assert!(serde_json::from_str::<ListValue<TextValue<'_>>>("null").unwrap().is_empty());
        assert_eq!(serde_json::from_str::<Labels<'_>>("null").unwrap().len(), 0);
        assert_eq!(serde_json::from_str::<TextOrNumber<'_>>("25").unwrap().to_string(), "25");
        assert_eq!(serde_json::from_str::<TextOrNumber<'_>>("\"25%\"").unwrap().to_string(), "25%");
    }

    #[test]
    fn long_list_in_a_cell_ends_with_the_remaining_count() {
        assert_eq!(first_and_more(&[1, 2, 3], 3, ",", "-"), "1,2,3");
        assert_eq!(first_and_more(&[1, 2, 3, 4, 5], 3, ",", "-"), "1,2,3 + 2 more...");
        assert_eq!(first_and_more::<u8>(&[], 3, ",", "-"), "-");
    }
}
