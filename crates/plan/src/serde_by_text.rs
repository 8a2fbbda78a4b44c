//! Types that files contain in their text form: a macro that serializes them by `Display` and deserializes them by `FromStr`.

/// Implements `Serialize` and `Deserialize` for a type by its text form. Deserializing fails with the message of the type's `FromStr`.
macro_rules! serde_by_text {
    ($kind:ty) => {
        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(|error: siga_model::error::Error| serde::de::Error::custom(error.message()))
            }
        }
    };
}

pub(crate) use serde_by_text;
