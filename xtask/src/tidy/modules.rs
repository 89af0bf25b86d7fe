//! Module cycles: no file of a published crate may depend on itself through other files.
//!
//! A module is a file. An inline module belongs to its file. A file depends on the file that
//! defines an item which it names, in a `use` or in a path, outside of `#[cfg(test)]`.
//!
//! Imports are followed to the definition: `super::Foo`, where the parent imports `Foo` from a
//! sibling, is a dependency on the sibling. A parent that declares a child and re-exports from it
//! does not depend on it. A parent that uses the child in its own code depends on it, and a child
//! that uses items of its parent's file depends on the parent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

use super::{TrackedFile, published};
use crate::Result;

/// Reports every module cycle of every published crate.
pub fn check(files: &[TrackedFile], problems: &mut Vec<String>) -> Result {
    for name in published() {
        let folder = format!("crates/{name}/src");
        let below = |file: &TrackedFile| {
            Some((
                file.path.strip_prefix(&folder)?.strip_prefix('/')?.to_owned(),
                file.text.clone(),
            ))
        };
        let files: BTreeMap<_, _> = files.iter().filter_map(below).collect();
        if files.is_empty() {
            continue;
        }
        let graph = Crate::read(&files).map_err(|e| format!("{folder}/{e}"))?.dependencies();
        let cycles = cycles(&graph);
        println!("tidy: {folder}: {} module cycles", cycles.len());
        problems.extend(cycles.iter().map(|cycle| shown(&folder, cycle, &graph)));
    }
    Ok(())
}

/// A module's path in the crate: the names from the root to the module.
type ModulePath = Vec<String>;

/// The dependencies of files, each with the first place that causes it.
type Graph = BTreeMap<ModulePath, BTreeMap<ModulePath, Place>>;

#[derive(Clone)]
struct Place {
    file: String,
    line: usize,
    path: String,
}

#[derive(Default)]
struct Module {
    /// The module of the file that contains this module.
    unit: ModulePath,
    file: String,
    children: BTreeSet<String>,
    items: BTreeSet<String>,
    /// The targets of imports by name. A name can have several: one per namespace, or in different
    /// functions.
    imports: BTreeMap<String, Vec<Vec<String>>>,
    globs: Vec<Vec<String>>,
}

/// A path in the source, and the module that contains it.
struct Mention {
    module: ModulePath,
    path: Vec<String>,
    line: usize,
    is_reexport: bool,
}

/// The target of a path: the module that defines an item, or a module itself.
enum Target {
    ItemIn(ModulePath),
    Module,
}

/// Maximum number of imports that are followed in a row: globs can import each other.
const MAX_DEPTH: usize = 16;

#[derive(Default)]
struct Crate {
    modules: BTreeMap<ModulePath, Module>,
    mentions: Vec<Mention>,
}

impl Crate {
    /// Reads a crate from its files, named as they are below `src`.
    fn read(files: &BTreeMap<String, String>) -> std::result::Result<Self, String> {
        let root = ["lib.rs", "main.rs"].into_iter().find(|name| files.contains_key(*name));
        let mut all = Self::default();
        let mut pending = vec![(Vec::new(), root.ok_or("lib.rs is missing")?.to_owned())];
        while let Some((path, file)) = pending.pop() {
            let text = files.get(&file).map_or("", String::as_str);
            let parsed = syn::parse_file(text).map_err(|e| format!("{file}: {e}"))?;
            let (unit, module) = (path.clone(), path);
            let mut reader = Reader { all: &mut all, unit, module, file, declared: Vec::new() };
            reader.enter(|reader| reader.visit_file(&parsed));
            for child in reader.declared {
                let below = child.join("/");
                let candidates = [format!("{below}.rs"), format!("{below}/mod.rs")];
                let found = candidates.into_iter().find(|name| files.contains_key(name));
                pending.push((child, found.ok_or_else(|| format!("{below}.rs is missing"))?));
            }
        }
        Ok(all)
    }

    /// Returns the dependencies between files.
    fn dependencies(&self) -> Graph {
        let mut graph = Graph::new();
        for Mention { module, path, line, is_reexport } in &self.mentions {
            let Some(Module { unit: from, file, .. }) = self.modules.get(module) else { continue };
            for target in self.resolve(module, path, 0) {
                let Target::ItemIn(target) = target else { continue };
                let Some(Module { unit: to, .. }) = self.modules.get(&target) else { continue };
                if to == from || (*is_reexport && to.starts_with(from)) {
                    continue;
                }
                let place = Place { file: file.clone(), line: *line, path: path.join("::") };
                let uses = graph.entry(from.clone()).or_default();
                let first = uses.entry(to.clone()).or_insert_with(|| place.clone());
                if place.line < first.line {
                    *first = place;
                }
            }
        }
        graph
    }

    /// Resolves a path from the module that contains it. Paths into other crates have no targets.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Vec<Target> {
        let mut module = from.to_vec();
        let mut rest = path;
        while let [first, more @ ..] = rest {
            match first.as_str() {
                "crate" => module.clear(),
                "self" => {}
                "super" => drop(module.pop()),
                _ if depth > MAX_DEPTH => return Vec::new(),
                _ if rest.len() == path.len() && !self.has(&module, first) => {
                    return self.through_globs(&module, rest, depth);
                }
                _ => return self.walk(module, rest, depth),
            }
            rest = more;
        }
        vec![Target::Module]
    }

    /// Returns true if a module declares, defines or imports a name.
    fn has(&self, module: &[String], name: &str) -> bool {
        self.modules.get(module).is_some_and(|module| {
            module.children.contains(name)
                || module.items.contains(name)
                || module.imports.contains_key(name)
        })
    }

    /// Descends from a module, name by name, to the module that defines an item.
    fn walk(&self, mut at: ModulePath, names: &[String], depth: usize) -> Vec<Target> {
        let mut rest = names;
        while let [name, more @ ..] = rest {
            let Some(module) = self.modules.get(&at) else { return Vec::new() };
            let is_child = module.children.contains(name);
            // A module and a function can have the same name. Only the module contains names.
            let is_module = is_child && !more.is_empty();
            if let (Some(imports), false) = (module.imports.get(name), is_module) {
                let follow = |import: &Vec<String>| {
                    self.resolve(&at, &[import.as_slice(), more].concat(), depth + 1)
                };
                return imports.iter().flat_map(follow).collect();
            }
            if module.items.contains(name) && !is_module {
                return vec![Target::ItemIn(at)];
            }
            if !is_child {
                let found = self.through_globs(&at, rest, depth);
                // For example, an item that a macro defines.
                return if found.is_empty() { vec![Target::ItemIn(at)] } else { found };
            }
            at.push(name.clone());
            rest = more;
        }
        vec![Target::Module]
    }

    /// Searches the glob imports of a module for the first name of a path.
    fn through_globs(&self, from: &[String], path: &[String], depth: usize) -> Vec<Target> {
        let (Some(module), Some(first)) = (self.modules.get(from), path.first()) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for glob in &module.globs {
            let Some(target) = self.module_at(from, glob) else { continue };
            if self.has(&target, first) {
                found.extend(self.walk(target, path, depth + 1));
            } else if depth < MAX_DEPTH {
                found.extend(self.through_globs(&target, path, depth + 1));
            }
        }
        found
    }

    /// Returns the module that a path names, if the path names a module of this crate directly.
    fn module_at(&self, from: &[String], path: &[String]) -> Option<ModulePath> {
        let mut at = from.to_vec();
        for name in path {
            match name.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                _ => at.push(name.clone()),
            }
        }
        self.modules.contains_key(&at).then_some(at)
    }
}

/// Reads one file into the crate.
struct Reader<'a> {
    all: &'a mut Crate,
    unit: ModulePath,
    module: ModulePath,
    file: String,
    /// Modules in separate files.
    declared: Vec<ModulePath>,
}

impl Reader<'_> {
    /// Registers the current module, and reads its content.
    fn enter(&mut self, read: impl FnOnce(&mut Self)) {
        let (unit, file) = (self.unit.clone(), self.file.clone());
        let module = self.current();
        (module.unit, module.file) = (unit, file);
        read(self);
    }

    fn current(&mut self) -> &mut Module {
        self.all.modules.entry(self.module.clone()).or_default()
    }

    fn mention(&mut self, path: Vec<String>, line: usize, is_reexport: bool) {
        let module = self.module.clone();
        self.all.mentions.push(Mention { module, path, line, is_reexport });
    }

    fn read_use(&mut self, tree: &UseTree, path: &mut Vec<String>, is_reexport: bool) {
        let depth = path.len();
        match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.read_use(&tree.tree, path, is_reexport);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.read_use(tree, path, is_reexport);
                }
            }
            UseTree::Glob(glob) => {
                let line = glob.star_token.span.start().line;
                self.current().globs.push(path.clone());
                // Any item may be imported, so the file depends on it.
                self.mention([path.as_slice(), &["*".to_owned()]].concat(), line, is_reexport);
            }
            UseTree::Name(tree) => self.read_import(&tree.ident, &tree.ident, path, is_reexport),
            UseTree::Rename(tree) => {
                self.read_import(&tree.ident, &tree.rename, path, is_reexport);
            }
        }
        path.truncate(depth);
    }

    fn read_import(
        &mut self,
        last: &Ident,
        name: &Ident,
        path: &mut Vec<String>,
        is_reexport: bool,
    ) {
        let mut name = name.to_string();
        if last == "self" {
            // `use a::b::{self}` imports `b`.
            name = if name == "self" { path.last().cloned().unwrap_or(name) } else { name };
        } else {
            path.push(last.to_string());
        }
        // `use name;` adds no information about the name.
        if path.as_slice() != [name.as_str()] {
            self.current().imports.entry(name).or_default().push(path.clone());
        }
        self.mention(path.clone(), last.span().start().line, is_reexport);
    }

    /// Reads the paths in the tokens of a macro call, whose syntax only the macro knows.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut line, mut colons, mut is_field) = (0, 0, false);
        for token in tokens.into_iter().map(Some).chain([None]) {
            if let Some(TokenTree::Ident(ident)) = &token
                && (path.is_empty() || colons == 2)
            {
                line = ident.span().start().line;
                path.push(ident.to_string());
                colons = 0;
                continue;
            }
            if let Some(TokenTree::Punct(punct)) = &token
                && punct.as_char() == ':'
                && !path.is_empty()
                && colons < 2
            {
                colons += 1;
                continue;
            }
            let is_called = matches!(&token, Some(TokenTree::Group(_)));
            if !path.is_empty() && !is_field {
                self.read_path(std::mem::take(&mut path), line, is_called);
            }
            path.clear();
            colons = 0;
            is_field = matches!(&token, Some(TokenTree::Punct(punct)) if punct.as_char() == '.');
            match token {
                Some(TokenTree::Group(group)) => self.read_tokens(group.stream()),
                Some(TokenTree::Ident(ident)) => {
                    line = ident.span().start().line;
                    path.push(ident.to_string());
                }
                _ => {}
            }
        }
    }

    /// Records a path. A single name in lower case is a local variable, unless it is called.
    fn read_path(&mut self, path: Vec<String>, line: usize, is_called: bool) {
        let is_type = |name: &String| name.starts_with(|first: char| first.is_ascii_uppercase());
        if path.len() > 1 || is_called || path.first().is_some_and(is_type) {
            self.mention(path, line, false);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name): (&[Attribute], _) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Impl(item) => (&item.attrs, None),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Mod(item) => (&item.attrs, None),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Use(item) => (&item.attrs, None),
            _ => (&[], None),
        };
        if is_for_tests(attributes) {
            return;
        }
        if let Some(name) = name {
            self.current().items.insert(name.to_string());
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        self.current().children.insert(name.clone());
        self.module.push(name);
        match &item.content {
            Some((_, items)) => {
                self.enter(|reader| items.iter().for_each(|item| reader.visit_item(item)));
            }
            None => self.declared.push(self.module.clone()),
        }
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            let is_reexport = !matches!(item.vis, Visibility::Inherited);
            self.read_use(&item.tree, &mut Vec::new(), is_reexport);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let (None, Some(first)) = (&path.leading_colon, path.segments.first()) {
            let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.read_path(names, first.ident.span().start().line, false);
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(function) = &*call.func
            && let Some(name) = function.path.get_ident()
        {
            self.read_path(vec![name.to_string()], name.span().start().line, true);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.read_tokens(call.tokens.clone());
    }

    // Derives and attributes name items of other crates.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

/// Returns true for `#[cfg(test)]`, alone or with further conditions.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let condition = attribute.meta.require_list().map(|list| list.tokens.to_string());
        condition.is_ok_and(|text| text == "test" || text.starts_with("all (test"))
    })
}

/// Finds cycles, shortest first, until none is left. No two cycles share a dependency.
fn cycles(graph: &Graph) -> Vec<Vec<ModulePath>> {
    let mut left: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (from, uses) in graph {
        left.insert(from, uses.keys().collect());
    }
    let mut found = Vec::new();
    loop {
        let shortest = left.keys().filter_map(|start| way_back(start, &left)).min_by_key(Vec::len);
        let Some(cycle) = shortest else { return found };
        let next = cycle.iter().cycle().skip(1);
        for (from, to) in cycle.iter().zip(next) {
            left.entry(from).and_modify(|uses| {
                uses.remove(to);
            });
        }
        found.push(cycle.into_iter().cloned().collect());
    }
}

/// Returns the shortest path from a module to itself.
fn way_back<'a>(
    start: &'a ModulePath,
    graph: &BTreeMap<&'a ModulePath, BTreeSet<&'a ModulePath>>,
) -> Option<Vec<&'a ModulePath>> {
    let mut queue = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = queue.pop_front() {
        for next in graph.get(way.last()?).into_iter().flatten() {
            if *next == start {
                return Some(way);
            }
            if seen.insert(*next) {
                queue.push_back([way.as_slice(), &[*next]].concat());
            }
        }
    }
    None
}

fn shown(folder: &str, cycle: &[ModulePath], graph: &Graph) -> String {
    let name = |path: &ModulePath| match path.as_slice() {
        [] => "crate".to_owned(),
        names => names.join("::"),
    };
    let closed: Vec<_> = cycle.iter().chain(cycle.first()).collect();
    let names: Vec<_> = closed.iter().map(|path| name(path)).collect();
    let mut text = format!("{folder}: module cycle {}", names.join(" -> "));
    for pair in closed.windows(2) {
        if let [from, to] = pair
            && let Some(place) = graph.get(*from).and_then(|uses| uses.get(*to))
        {
            let Place { file, line, path } = place;
            let _ = write!(text, "\n      {folder}/{file}:{line}: {path}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Crate, cycles};

    /// Returns the cycles of a crate with these files.
    fn cycles_of(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect();
        let graph = Crate::read(&files).unwrap().dependencies();
        let shown = |cycle: &Vec<Vec<String>>| {
            cycle.iter().map(|path| path.join("::")).collect::<Vec<_>>().join(" -> ")
        };
        cycles(&graph).iter().map(shown).collect()
    }

    #[test]
    fn a_cycle_is_found_by_imports_and_by_paths() {
        let root = ("lib.rs", "mod a; mod b; mod c;");
        let a = ("a.rs", "use crate::b::B; pub struct A(B);");
        let b = ("b.rs", "pub struct B; fn f() -> crate::c::C { crate::c::C }");
        let c = ("c.rs", "pub struct C; fn g() { assert!(super::a::A::new().is_some()); }");
        assert_eq!(cycles_of(&[root, a, b, c]), ["a -> b -> c"]);
        let free = ("c.rs", "pub struct C;");
        assert!(cycles_of(&[root, a, b, free]).is_empty());
    }

    #[test]
    fn a_reexport_is_not_a_cycle() {
        let root = ("lib.rs", "mod a;");
        let a = ("a.rs", "mod x; mod y; pub use x::X; pub(crate) use self::y::{Y as Z};");
        let x = ("a/x.rs", "use super::Z; pub struct X(Z);");
        let y = ("a/y.rs", "pub struct Y;");
        assert!(cycles_of(&[root, a, x, y]).is_empty());
    }

    #[test]
    fn imports_are_followed_to_the_definition() {
        let root = ("lib.rs", "mod a; mod b; pub use a::{X, Y}; mod all { pub use crate::a::*; }");
        let a = ("a/mod.rs", "mod x; mod y; pub use x::*; pub use y::Y; use crate::b::B;");
        let x = ("a/x.rs", "use crate::Y; use super::B; pub struct X(Y, B);");
        let b = ("b.rs", "pub struct B; fn f(_: crate::all::X) {}");
        // `b` uses X through the root, and `a::x` uses B through its parent.
        let y = ("a/y.rs", "pub struct Y;");
        assert_eq!(cycles_of(&[root, a, x, y, b]), ["a::x -> b"]);
        let y = ("a/y.rs", "use super::X; pub struct Y(X);");
        assert_eq!(cycles_of(&[root, a, x, y, b]), ["a::x -> a::y", "a::x -> b"]);
    }

    #[test]
    fn a_parent_and_a_child_that_use_each_other_are_a_cycle() {
        let root = ("lib.rs", "mod a; pub const LIMIT: usize = 1;");
        let a = "mod x; pub use x::X; pub struct A;";
        let x = ("a/x.rs", "use super::A; pub struct X(A); const N: usize = crate::LIMIT;");
        assert!(cycles_of(&[root, ("a.rs", a), x]).is_empty());
        let used = format!("{a} fn f(_: X) {{}}");
        assert_eq!(cycles_of(&[root, ("a.rs", &used), x]), ["a -> a::x"]);
        let in_macro = format!("{a} fn f() {{ assert!(X::new().is_ok()); }}");
        assert_eq!(cycles_of(&[root, ("a.rs", &in_macro), x]), ["a -> a::x"]);
    }

    #[test]
    fn tests_and_other_crates_do_not_count() {
        let root = ("lib.rs", "mod a; mod http;");
        let a = (
            "a.rs",
            "pub struct A; use ::http::Uri; use http::Method; fn f(_: http::Uri) {}
             #[cfg(test)] mod tests { use crate::http::H; }
             #[cfg(test)] use crate::http::H;",
        );
        let http = ("http.rs", "use crate::a::A; pub struct H(A);");
        assert!(cycles_of(&[root, a, http]).is_empty());
    }
}
