//! Builder methods for the optional fields of wire types, which cannot be built as literals outside
//! this crate.

/// Defines `with_*` methods that each set one optional field.
macro_rules! setters {
    ($type:ident { $($method:ident($field:ident: $value:ty)),+ $(,)? }) => {
        impl $type {$(
            #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
            pub fn $method(mut self, $field: impl Into<$value>) -> Self {
                self.$field = Some($field.into());
                self
            }
        )+}
    };
}

pub(crate) use setters;
