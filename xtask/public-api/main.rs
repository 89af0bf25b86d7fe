//! Prints the public items in a file of rustdoc's JSON, one a line.

use std::collections::BTreeSet;
use std::error::Error;

use public_api::{Builder, PublicApi};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: print-public-api FILE")?;
    let with_derived = read(&path, false)?;
    let without_derived = read(&path, true)?;
    let written: BTreeSet<String> = without_derived.items().map(ToString::to_string).collect();
    let mut printed = BTreeSet::new();
    for item in with_derived.items().map(ToString::to_string) {
        // A derived impl is one line: its methods are those of the trait.
        let is_shown = written.contains(&item) || item.starts_with("impl");
        // The compiler adds it beside `PartialEq`.
        let is_internal = item.contains("core::marker::StructuralPartialEq");
        if is_shown && !is_internal && printed.insert(item.clone()) {
            println!("{item}");
        }
    }
    Ok(())
}

fn read(path: &str, omit_derived: bool) -> Result<PublicApi, public_api::Error> {
    Builder::from_rustdoc_json(path)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(omit_derived)
        .build()
}
