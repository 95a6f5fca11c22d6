//! Schemas of the `--json` documents that this crate declares, as opposed to a library.

use schemars::{Schema, SchemaGenerator};

use super::{backing, flash, policies, trace};

/// The schema of each document, by the name of its table in the documentation.
pub fn schemas(generator: &mut SchemaGenerator) -> [(&'static str, Schema); 5] {
    [
        ("backing", generator.subschema_for::<backing::Report>()),
        ("flash tier", generator.subschema_for::<flash::Report>()),
        ("policies", generator.subschema_for::<policies::Document>()),
        ("policies admission", generator.subschema_for::<policies::AdmissionDocument>()),
        ("written trace", generator.subschema_for::<trace::WroteTrace>()),
    ]
}
