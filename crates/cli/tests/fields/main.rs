//! Checks the tables in the documentation that explain the fields of documents and the columns of
//! `--parquet`.
//!
//! Goal: every printed field is explained once, at its declaration. Method: schemars generates a
//! schema from the fields of each printed type and their documentation. The text of each table in
//! `docs/` between `<!-- fields: NAME -->` and `<!-- end of fields -->` is generated from the
//! schema of that name, and compared.
//!
//! `FOREBAY_UPDATE_DOCS=1 cargo test -p forebay --test fields` rewrites the tables.

mod pages;
mod table;

use forebay_analysis::{consolidate, curve, miniature, partition, plan, sample, simulation};
use forebay_plan::{Choice, Plan, Purchase, StudySummary};
use forebay_results::{
    CacheResult, ComponentLatency, Components, Events, FlashResult, Hits, Latency, LatencyByOp,
    ReadWrite, RunResult, TraceIdentity,
};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;

use pages::{Page, Pages};
use table::Types;

/// The types by the names of their tables. A type with a table is explained only there: other
/// tables link to it.
fn types() -> Types {
    let mut generator = new_generator();
    let mut types = Types::default();
    macro_rules! add {
        ($($name:literal: $type:ty,)*) => {
            $(types.add($name, &generator.subschema_for::<$type>());)*
        };
    }
    add! {
        "consolidate": consolidate::Document,
        "phase": consolidate::PhaseDocument,
        "mrc": curve::Document,
        "mrc curve": curve::Curve,
        "mrc point": curve::Point,
        "mrc policy": curve::policies::Answer,
        "mrc policy point": curve::policies::Point,
        "mrc config": forebay_render::miniature::Miniature<'static>,
        "mrc config ratios": miniature::Ratios,
        "partition": partition::Document,
        "volume of a baseline": partition::BaselineRow,
        "plan": plan::Document<'static>,
        "plan of a budget": Plan,
        "choice": Choice,
        "purchase": Purchase,
        "plan have": plan::growth::Document,
        "plan study": plan::study::Document,
        "study summary": StudySummary,
        "replay": forebay_render::run::Document,
        "sample": sample::Document,
        "one sample": sample::SampleDocument,
        "candidate": sample::Candidate,
        "errors of hit ratios": sample::HitRatioError,
        "simulate": simulation::Document<'static>,
        "simulate policy": simulation::ComparisonDocument<'static>,
        "run": RunResult,
        "cache": CacheResult,
        "hits": Hits,
        "reads and writes": ReadWrite,
        "latency": Latency,
        "latency by operation": LatencyByOp,
        "operations": Components,
        "operation": ComponentLatency,
        "flash": FlashResult,
        "events": Events,
        "trace": TraceIdentity,
        "trace info": forebay_trace::TraceInfo,
        "trace info of a volume": forebay_trace::VolumeUse,
        "ctl status of requests": forebay_engine::Workload,
    }
    macro_rules! add_rows {
        ($($name:literal: $type:ty,)*) => {
            $(types.add_rows($name, &generator.subschema_for::<$type>());)*
        };
    }
    add_rows! {
        "columns of consolidate": consolidate::Row<'static>,
        "columns of mrc": curve::Row<'static>,
        "columns of mrc policy": curve::policies::Row<'static>,
        "columns of mrc config": miniature::Row,
        "columns of partition": partition::Row<'static>,
        "columns of plan": plan::Row,
        "columns of plan have": plan::growth::Row,
        "columns of plan study": plan::study::Row,
        "columns of replay": forebay_render::run::RunRow,
        "columns of replay intervals": forebay_replay::Interval,
        "columns of sample": sample::Row<'static>,
        "columns of simulate": forebay_simulate::Row,
    }
    let [serving, starting, stopping] = forebay_serve::control::status_schemas(&mut generator);
    types.add("ctl status", &serving);
    types.add("ctl status at the start", &starting);
    types.add("ctl status at the end", &stopping);
    for (name, schema) in forebay_cli::documents::schemas(&mut generator) {
        types.add(name, &schema);
    }
    types.define(generator.take_definitions(true));
    types
}

#[test]
fn tables_of_fields_are_as_the_fields_are_declared() {
    let types = types();
    let pages = Pages::read();
    let update = std::env::var_os("FOREBAY_UPDATE_DOCS").is_some();
    for name in types.names() {
        assert!(pages.place(name).is_some(), "no page has `<!-- fields: {name} -->`");
    }
    for page in pages.iter() {
        let text = page.with_tables(|name| types.table(name, &pages, &page.file));
        if update && text != page.text {
            std::fs::write(page.path(), text).unwrap();
        } else {
            assert!(
                text == page.text,
                "docs/{} is out of date: run \
                 `FOREBAY_UPDATE_DOCS=1 cargo test -p forebay --test fields`",
                page.file
            );
        }
    }
}

#[test]
fn a_field_has_its_type_and_what_is_said_of_it() {
    use schemars::JsonSchema;

    /// What may be.
    #[derive(JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    #[allow(dead_code)]
    enum Shape {
        /// It is round.
        Round,
        /// It is not.
        NotRound,
    }

    /// The size of a thing.
    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Size {
        /// Its length, see [`Shape`] and [`Size`](Size).
        length_bytes: u64,
        /// Its width, [elsewhere](docs/there.md#width).
        width: Option<f64>,
    }

    /// The whole.
    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Whole {
        /// Its name.
        z: &'static str,
        /// Its shape.
        shape: Shape,
        /// How large.
        #[serde(flatten)]
        size: Size,
        /// Its parts; left out if it has none.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        parts: Vec<Part>,
        /// Curve: pairs | of two.
        curve: Vec<(u64, f64)>,
        /// Not shown.
        #[serde(skip)]
        hidden: u64,
    }

    /// A part.
    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Part {
        /// How large.
        size: Option<Size>,
        /// Whether it is good.
        good: bool,
        /// Counts by reason.
        counts: std::collections::BTreeMap<String, u64>,
    }

    let mut generator = new_generator();
    let mut types = Types::default();
    types.add("whole", &generator.subschema_for::<Whole>());
    types.define(generator.take_definitions(true));
    let page = Page::new("here.md", "## A thing\n<!-- fields: whole -->\n<!-- end of fields -->\n");
    let pages = Pages::new(vec![page]);
    assert_eq!(
        types.table("whole", &pages, "here.md"),
        "| field | type | meaning |\n\
         | --- | --- | --- |\n\
         | `z` | text | Its name. |\n\
         | `shape` | text | Its shape. `round`: It is round. `not-round`: It is not. |\n\
         | `length_bytes` | integer | Its length, see `Shape` and `Size`. |\n\
         | `width` | number or null | Its width, [elsewhere](there.md#width). |\n\
         | `curve` | list of [integer, number] | Curve: pairs \\| of two. |\n\
         | `parts[]` | list of objects, or left out | Its parts; left out if it has none. |\n\
         | `parts[].size` | object or null | How large. |\n\
         | `parts[].size.length_bytes` | integer | Its length, see `Shape` and `Size`. |\n\
         | `parts[].size.width` | number or null | Its width, [elsewhere](there.md#width). |\n\
         | `parts[].good` | boolean | Whether it is good. |\n\
         | `parts[].counts.NAME` | integer by name | Counts by reason. |\n"
    );
    // `Size` gets a table of its own.
    let mut generator = new_generator();
    let mut types = Types::default();
    types.add("whole", &generator.subschema_for::<Whole>());
    types.add("size", &generator.subschema_for::<Size>());
    types.define(generator.take_definitions(true));
    let there =
        Page::new("there.md", "# There\n\n### How *large*, `it` is\n\n<!-- fields: size -->\n");
    let page = Page::new("here.md", "## A thing\n<!-- fields: whole -->\n");
    let pages = Pages::new(vec![page, there]);
    let table = types.table("whole", &pages, "here.md");
    let link = "[How large, it is](there.md#how-large-it-is)";
    assert!(table.contains(&format!("| `*` | | The fields of {link}. |\n")), "{table}");
    assert!(
        table.contains(&format!("| `parts[].size` | {link} or null | How large. |\n")),
        "{table}"
    );
    assert!(!table.contains("length_bytes"), "{table}");
}

#[test]
fn columns_have_joined_names_and_those_of_what_is_not_there_may_be_null() {
    use schemars::JsonSchema;

    /// The size of a thing.
    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Size {
        /// Its length.
        length_bytes: u64,
        /// Its width.
        width: Option<f64>,
    }

    /// A thing.
    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Thing {
        /// How large.
        size: Option<Size>,
        /// Whether it is good.
        good: bool,
        /// Not shown: a list.
        all: Vec<u64>,
    }

    let mut types = Types::default();
    let mut generator = new_generator();
    types.add_rows("plain", &generator.subschema_for::<(Thing, Option<Size>)>());
    types.define(generator.take_definitions(true));
    let here = Page::new("here.md", "## Columns\n<!-- fields: size -->\n");
    let pages = Pages::new(vec![here]);
    assert_eq!(
        types.table("plain", &pages, "here.md"),
        "| column | type | meaning |\n\
         | --- | --- | --- |\n\
         | `size_length_bytes` | integer or null | Its length. |\n\
         | `size_width` | number or null | Its width. |\n\
         | `good` | boolean | Whether it is good. |\n\
         | `length_bytes` | integer or null | Its length. |\n\
         | `width` | number or null | Its width. |\n"
    );
    types.add("size", &generator.subschema_for::<Size>());
    assert_eq!(
        types.table("plain", &pages, "here.md"),
        "| column | type | meaning |\n\
         | --- | --- | --- |\n\
         | `size_*` | or null | The fields of [Columns](#columns). |\n\
         | `good` | boolean | Whether it is good. |\n\
         | `*` | or null | The fields of [Columns](#columns). |\n"
    );
}

fn new_generator() -> SchemaGenerator {
    SchemaGenerator::new(SchemaSettings::draft2020_12().for_serialize())
}
