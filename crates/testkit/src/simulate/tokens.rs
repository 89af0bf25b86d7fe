//! The access tokens of a client, and the logins that obtain further scopes.

use std::collections::BTreeSet;

use mrtr_transport::GrantedScopes;

use crate::random::Random;

/// The number of scopes that handlers may require.
pub(super) const SCOPES: u64 = 3;

/// Returns the name of a scope.
pub(super) fn name(scope: u64) -> String {
    format!("scope:{scope}")
}

/// Returns all scopes that handlers may require.
pub(super) fn all() -> GrantedScopes {
    GrantedScopes::new((0..SCOPES).map(name))
}

/// The scopes that a client has, and those that its user is willing to grant.
#[derive(Debug, Clone)]
pub(super) struct Tokens {
    initial: BTreeSet<String>,
    held: BTreeSet<String>,
    /// The scope that the user does not grant.
    pub(super) refused: Option<String>,
    /// Percentage of requests with a token that has lost what was granted later.
    loses: u64,
    /// The challenges that led to a login.
    pub(super) logins: usize,
}

impl Tokens {
    pub(super) fn new(random: &mut Random) -> Self {
        let all = (0..SCOPES).map(name);
        let mut tokens = Self {
            initial: all.clone().collect(),
            held: BTreeSet::new(),
            refused: None,
            loses: 0,
            logins: 0,
        };
        if random.below(2) == 0 {
            tokens.initial = all.filter(|_| random.below(2) == 0).collect();
            tokens.loses = if random.below(4) == 0 { 20 } else { 0 };
            let refused = name(random.below(SCOPES));
            let is_refused = random.below(6) == 0 && !tokens.initial.contains(&refused);
            tokens.refused = is_refused.then_some(refused);
        }
        tokens.held = tokens.initial.clone();
        tokens
    }

    /// Returns true if all scopes were granted from the start.
    pub(super) fn are_complete(&self) -> bool {
        self.initial.len() as u64 == SCOPES
    }

    /// Returns true if no token lacks a scope that an earlier one had.
    pub(super) fn only_gain(&self) -> bool {
        self.loses == 0
    }

    /// Returns the scopes of the token for the next request.
    pub(super) fn next(&mut self, random: &mut Random) -> GrantedScopes {
        if random.below(100) < self.loses {
            self.held = self.initial.clone();
        }
        self.current()
    }

    /// Returns the scopes of the token in use.
    pub(super) fn current(&self) -> GrantedScopes {
        GrantedScopes::new(self.held.iter().cloned())
    }

    /// Logs in for the scopes of a challenge. Returns false if the user does not grant them. A user
    /// who closes the page is asked again.
    ///
    /// # Errors
    ///
    /// If the challenge names no scope that the token lacks, or one that no handler requires.
    pub(super) fn log_in(
        &mut self,
        challenge: &[String],
        required: &BTreeSet<String>,
        random: &mut Random,
    ) -> Result<bool, String> {
        if let Some(other) = challenge.iter().find(|scope| !required.contains(*scope)) {
            return Err(format!("a challenge names {other}, which the handler does not require"));
        }
        if challenge.iter().all(|scope| self.held.contains(scope)) {
            return Err(format!("a challenge names {challenge:?}, which the token has"));
        }
        self.logins += 1;
        if random.below(4) == 0 {
            return Ok(true);
        }
        let refused = self.refused.as_ref();
        self.held.extend(challenge.iter().filter(|scope| Some(*scope) != refused).cloned());
        Ok(challenge.iter().all(|scope| Some(scope) != refused))
    }
}
