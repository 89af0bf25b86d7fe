//! Which subschemas are applied to the same node of a value.

/// Maximum nesting of subschemas: of those that are applied to one node, references included, and
/// of those that the validator compiles on its stack.
pub(super) const MAX_DEPTH: usize = 200;

/// The subschemas that are applied to the same node as one of them, references not followed.
#[derive(Debug, Default, Clone)]
pub(super) struct InPlace {
    pub(super) depth: usize,
    /// The index of each target, and how deep its reference is.
    pub(super) targets: Vec<(usize, usize)>,
}

impl InPlace {
    pub(super) fn add(&mut self, other: Self) {
        self.depth = self.depth.max(other.depth);
        self.targets.extend(other.targets);
    }

    /// Returns it below another subschema.
    pub(super) fn nested(mut self) -> Self {
        self.depth += 1;
        for (_, depth) in &mut self.targets {
            *depth += 1;
        }
        self
    }
}

/// Follows references between subschemas that are applied to the same node.
pub(super) struct Chains<'a> {
    /// The targets.
    entries: Vec<&'a InPlace>,
    /// What [`follow`](Self::follow) returned for them.
    known: Vec<Option<usize>>,
}

impl<'a> Chains<'a> {
    pub(super) fn new(entries: Vec<&'a InPlace>) -> Self {
        Self { known: vec![None; entries.len()], entries }
    }

    /// Returns the nesting of subschemas, references included.
    ///
    /// # Errors
    ///
    /// If references lead back to the same target: a schema "MUST NOT be run into an infinite loop"
    /// (JSON Schema 2020-12, section 9.4.1).
    pub(super) fn follow(&mut self, from: &InPlace) -> Result<usize, String> {
        self.follow_from(from, 0)
    }

    fn follow_from(&mut self, from: &InPlace, outside: usize) -> Result<usize, String> {
        let mut deepest = from.depth;
        for (target, depth) in &from.targets {
            // Too long a chain, or a circle.
            if outside + depth > MAX_DEPTH {
                return Err(nested_too_deep());
            }
            let known = self.known.get(*target).copied().flatten();
            let nested = match known {
                Some(known) => known,
                None => {
                    let Some(entry) = self.entries.get(*target) else { continue };
                    let found = self.follow_from(entry, outside + depth)?;
                    if let Some(known) = self.known.get_mut(*target) {
                        *known = Some(found);
                    }
                    found
                }
            };
            deepest = deepest.max(depth + nested);
        }
        if deepest > MAX_DEPTH { Err(nested_too_deep()) } else { Ok(deepest) }
    }
}

pub(super) fn nested_too_deep() -> String {
    format!("subschemas are nested deeper than {MAX_DEPTH}, references included")
}
