//! `table!`: an enum whose variants are the rows of a table. `row!`: a struct whose values are the rows of one.

/// Declares an enum as a table with one row for each variant; everything else follows from that, `ALL` too. After `as` stands
/// the name of the method that gives what the row has. With `told` before the enum's name, the two lines of
/// comment of each row are words for people, and the compiler requires both.
macro_rules! table {
    ($(#[$about:meta])* told $name:ident: $row:ty as $see:vis $get:ident {
        $(#[doc = $first:literal] #[doc = $second:literal] $(#[$mark:ident])? $variant:ident = $facts:expr;)+
    }) => {
        $crate::table::table! {
            $(#[$about])*
            $name: $row as $see $get { $(#[doc = $first] #[doc = $second] $(#[$mark])? $variant = $facts;)+ }
        }

        impl $name {
            /// The two lines of its comment.
            const fn words(self) -> [&'static str; 2] {
                match self {
                    $($name::$variant => [$first.trim_ascii_start(), $second.trim_ascii_start()],)+
                }
            }
        }
    };
    ($(#[$about:meta])* $name:ident: $row:ty as $see:vis $get:ident {
        $($(#[$doc:meta])* $variant:ident = $facts:expr;)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// Every one, in this order.
            #[allow(dead_code, reason = "not every table is listed")]
            pub(crate) const ALL: [$name; [$($name::$variant),+].len()] = [$($name::$variant),+];

            /// What its row has.
            $see const fn $get(self) -> $row {
                match self {
                    $($name::$variant => $facts,)+
                }
            }
        }
    };
}

/// Declares a struct for rows that have much in common. `USUAL` has the value that stands after each field, and a method
/// with the name of the field sets another one.
macro_rules! row {
    ($(#[$about:meta])* $name:ident {
        $($(#[$doc:meta])* $seen:vis $field:ident: $type:ty = $usual:expr,)+
    }) => {
        $(#[$about])*
        #[derive(Debug)]
        pub(crate) struct $name {
            $($(#[$doc])* $seen $field: $type,)+
        }

        impl $name {
            const USUAL: $name = $name { $($field: $usual,)+ };

            $(const fn $field(mut self, $field: $type) -> $name {
                self.$field = $field;
                self
            })+
        }
    };
}

/// What most rows consist of.
pub(crate) type Text = &'static str;

pub(crate) use {row, table};
