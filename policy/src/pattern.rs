//! Patterns that the entries of a rule consist of. The `-` of an inverted entry is not part of the pattern.

/// A pattern that matches values and can be compared with another pattern.
pub(crate) trait Pattern: Sized {
    type Value<'a>: Copy;
    /// Parses an entry. The caller handles the entry `*`, because `*` matches every value.
    fn parse(text: &str) -> Self;
    fn matches(&self, value: Self::Value<'_>) -> bool;
    /// Returns whether this pattern matches all values of `other`.
    fn covers(&self, other: &Self) -> bool;
    /// Returns whether some value may match both patterns.
    fn overlaps(&self, other: &Self) -> bool;
}

/// A literal word, for example a verb or an API group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) Box<str>);

impl Pattern for Word {
    type Value<'a> = &'a str;

    fn parse(text: &str) -> Self {
        Self(text.into())
    }

    fn matches(&self, value: &str) -> bool {
        *self.0 == *value
    }

    fn covers(&self, other: &Self) -> bool {
        self == other
    }

    fn overlaps(&self, other: &Self) -> bool {
        self == other
    }
}

/// A literal text, or a prefix if the entry ends with `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextPattern {
    Exact(Box<str>),
    Prefix(Box<str>),
}

impl TextPattern {
    /// Returns the text without a `*` at its end.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Prefix(text) => text,
        }
    }
}

impl Pattern for TextPattern {
    type Value<'a> = &'a str;

    fn parse(text: &str) -> Self {
        match text.ends_with('*') {
            true => Self::Prefix(text.trim_end_matches('*').into()),
            false => Self::Exact(text.into()),
        }
    }

    fn matches(&self, value: &str) -> bool {
        match self {
            Self::Exact(text) => **text == *value,
            Self::Prefix(prefix) => value.starts_with(&**prefix),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Exact(text)) => self.matches(text),
            (Self::Prefix(mine), Self::Prefix(theirs)) => theirs.starts_with(&**mine),
            (Self::Exact(_), Self::Prefix(_)) => false,
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }
}

/// A ServiceAccount, written `NAMESPACE/NAME` or `NAMESPACE/*`. The pattern is stored as in user names:
/// `NAMESPACE:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceAccountPattern(pub(crate) TextPattern);

impl Pattern for ServiceAccountPattern {
    type Value<'a> = &'a str;

    fn parse(text: &str) -> Self {
        Self(TextPattern::parse(&text.replacen('/', ":", 1)))
    }

    fn matches(&self, value: &str) -> bool {
        self.0.matches(value)
    }

    fn covers(&self, other: &Self) -> bool {
        self.0.covers(&other.0)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.0.overlaps(&other.0)
    }
}

/// A resource: `pods`, `pods/status` or `*/status`. `pods` does not match `pods/status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourcePattern {
    /// The resource; `None` if the pattern matches all resources.
    pub(crate) resource: Option<Box<str>>,
    /// The subresource; empty if the pattern matches the object itself.
    pub(crate) subresource: Box<str>,
}

impl Pattern for ResourcePattern {
    type Value<'a> = (&'a str, &'a str);

    fn parse(text: &str) -> Self {
        let (resource, subresource) = text.split_once('/').unwrap_or((text, ""));
        Self { resource: (resource != "*").then(|| resource.into()), subresource: subresource.into() }
    }

    fn matches(&self, (resource, subresource): (&str, &str)) -> bool {
        *self.subresource == *subresource && self.resource.as_deref().is_none_or(|own| own == resource)
    }

    fn covers(&self, other: &Self) -> bool {
        self.subresource == other.subresource && (self.resource.is_none() || self.resource == other.resource)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }
}
