//! Changes of what a running server offers.

use std::fmt;
use std::sync::{Arc, PoisonError};

use crate::build_error::BuildError;
use crate::catalog::{CatalogEntry, Entry};
use crate::changes::Change;
use crate::features::{Feature, Features};
use crate::group::FeatureGroup;
use crate::registry::Updatable;
use crate::server::Server;

/// A change of what a running server offers, made by [`Server::update`].
pub struct ServerUpdate {
    features: Features,
    updatable: Updatable,
    /// The list that is not updatable, and was to be changed.
    refused: Option<&'static str>,
}

impl ServerUpdate {
    /// Adds a feature at the end of its list.
    ///
    /// # Errors
    ///
    /// A [`BuildError`] that concerns this feature alone. Others, such as a duplicate name, are
    /// found when the closure of [`Server::update`] has returned.
    pub fn add<F: Feature>(&mut self, feature: F) -> Result<(), BuildError> {
        self.entries::<F>();
        self.features.add(feature)
    }

    /// Adds the features of a group, which keep its state, rules and layers.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add), and [`BuildError::DuplicateState`].
    pub fn merge(&mut self, group: FeatureGroup) -> Result<(), BuildError> {
        let FeatureGroup { tools, prompts, resources, templates, duplicate_state, .. } =
            FeatureGroup::new().merge(group);
        if let Some(duplicate) = duplicate_state {
            return Err(BuildError::DuplicateState(duplicate));
        }
        tools.into_iter().try_for_each(|tool| self.add(tool))?;
        prompts.into_iter().try_for_each(|prompt| self.add(prompt))?;
        resources.into_iter().try_for_each(|resource| self.add(resource))?;
        templates.into_iter().try_for_each(|template| self.add(template))
    }

    /// Adds the features of a group under a prefix: see [`FeatureGroup::mount`].
    ///
    /// # Errors
    ///
    /// As for [`merge`](Self::merge).
    pub fn mount(&mut self, prefix: &str, group: FeatureGroup) -> Result<(), BuildError> {
        self.merge(FeatureGroup::new().mount(prefix, group))
    }

    /// Replaces the feature with the same name or URI, at its place in the list, or adds it if
    /// there is none. A disabled feature stays disabled. The rules, state and layers of a
    /// [group](crate::FeatureGroup) that had the old feature do not apply to the new one.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    pub fn replace<F: Feature>(&mut self, feature: F) -> Result<(), BuildError> {
        let item = Arc::new(feature.prepare()?);
        match self.find::<F>(item.key()) {
            Some(entry) => entry.item = item,
            None => self.entries::<F>().push(Entry { item, is_enabled: true }),
        }
        Ok(())
    }

    /// Sorts the list of one kind by what `rank` returns for each name, URI or URI template.
    /// Features of the same rank stay in their order. A URI that several templates match is for the
    /// first of them in the list.
    ///
    /// Tools should be listed in the same order while they are the same (specification: "Tools").
    /// Replicas that add features in different orders can agree on one, and clients can then read
    /// the pages of a list from several of them.
    pub fn sort_by_key<F: Feature, K: Ord>(&mut self, mut rank: impl FnMut(&str) -> K) {
        self.entries::<F>().sort_by_cached_key(|entry| rank(entry.item.key()));
    }

    /// Removes the feature with this name, URI or URI template. Returns false if there is none.
    pub fn remove<F: Feature>(&mut self, key: &str) -> bool {
        let entries = self.entries::<F>();
        let before = entries.len();
        entries.retain(|entry| entry.item.key() != key);
        entries.len() < before
    }

    /// Hides the feature with this name, URI or URI template from lists, and refuses its use, until
    /// it is [enabled](Self::enable). Returns false if there is none.
    pub fn disable<F: Feature>(&mut self, key: &str) -> bool {
        self.find::<F>(key).map(|entry| entry.is_enabled = false).is_some()
    }

    /// Offers a [disabled](Self::disable) feature again, at its place in the list. Returns false if
    /// there is none.
    pub fn enable<F: Feature>(&mut self, key: &str) -> bool {
        self.find::<F>(key).map(|entry| entry.is_enabled = true).is_some()
    }

    /// Returns true if there is a feature with this name, URI or URI template, even a
    /// [disabled](Self::disable) one.
    pub fn contains<F: Feature>(&self, key: &str) -> bool {
        self.entry::<F>(key).is_some()
    }

    /// Returns true if the feature with this name, URI or URI template is
    /// [disabled](Self::disable).
    pub fn is_disabled<F: Feature>(&self, key: &str) -> bool {
        self.entry::<F>(key).is_some_and(|entry| !entry.is_enabled)
    }

    fn entry<F: Feature>(&self, key: &str) -> Option<&Entry<F::Item>> {
        F::entries_of(&self.features).iter().find(|entry| entry.item.key() == key)
    }

    fn find<F: Feature>(&mut self, key: &str) -> Option<&mut Entry<F::Item>> {
        self.entries::<F>().iter_mut().find(|entry| entry.item.key() == key)
    }

    /// Returns a list that is to be changed.
    fn entries<F: Feature>(&mut self) -> &mut Vec<Entry<F::Item>> {
        let (is_updatable, list) = match F::CHANGE {
            Change::Tools => (self.updatable.tools, "tools"),
            Change::Prompts => (self.updatable.prompts, "prompts"),
            Change::Resources | Change::Resource(_) => (self.updatable.resources, "resources"),
        };
        if !is_updatable {
            self.refused = Some(list);
        }
        F::entries(&mut self.features)
    }
}

impl fmt::Debug for ServerUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerUpdate").finish_non_exhaustive()
    }
}

impl Server {
    /// Changes what this server offers, from any thread: adds, replaces, removes, disables and
    /// enables tools, prompts, resources and resource templates.
    ///
    /// The change takes effect as a whole when `edit` has returned, or not at all, and clients that
    /// subscribed to a list that has changed are told (specification: "List Changed
    /// Notification"). A request in flight ends on what it began with. Later rounds of a call, and
    /// tasks, are for the tool that has the name then, as after a deployment:
    /// [`Tool::version`](crate::Tool::version) says which calls it can continue. Tasks of a tool
    /// that is gone wait until it returns, or until they expire.
    ///
    /// The kind of feature must be [`updatable`](crate::ServerBuilder::updatable). Each replica is
    /// updated by itself.
    ///
    /// ```
    /// use mrtr_server::{Context, Server, Tool};
    ///
    /// let server = Server::builder("shop", "1.0.0")
    ///     .updatable::<Tool>()
    ///     .tool(Tool::new("search", "Searches the shop", async |_: Context| "Nothing found"))
    ///     .allow_anonymous()
    ///     .ephemeral_key()
    ///     .build()?;
    ///
    /// server.update(|update| {
    ///     update.add(Tool::new("order", "Orders", async |_: Context| "Ordered"))?;
    ///     update.disable::<Tool>("search");
    ///     Ok(())
    /// })?;
    /// # Ok::<(), mrtr_server::BuildError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `edit`, [`BuildError::NotUpdatable`], or any error that building a server with
    /// the new features has. Nothing has changed then.
    ///
    /// # Deadlocks
    ///
    /// Updates wait for each other: `edit` must not update the same server.
    pub fn update(
        &self,
        edit: impl FnOnce(&mut ServerUpdate) -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        let _updating = self.parts.updating.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.registry();
        let (features, updatable) = (before.features(), before.updatable);
        let mut update = ServerUpdate { features, updatable, refused: None };
        edit(&mut update)?;
        if let Some(list) = update.refused {
            return Err(BuildError::NotUpdatable(list));
        }
        let after = before.with_features(update.features)?;
        let changes = before.changed_lists(&after);
        self.parts.current.store(Arc::new(after));
        for change in changes {
            before.changes.publish(change);
        }
        Ok(())
    }
}
