//! One entry of a field, without the `-` that inverts it.

/// What an entry matches, and how it stands to another one.
pub(crate) trait Pattern: Sized {
    /// What is asked.
    type Asked<'a>: Copy;
    /// Reads an entry. `*` alone never comes here: it matches everything.
    fn parse(text: &str) -> Self;
    /// Whether it matches.
    fn matches(&self, asked: Self::Asked<'_>) -> bool;
    /// Whether it matches whatever the other one does.
    fn covers(&self, other: &Self) -> bool;
    /// Whether something may be that both match.
    fn overlaps(&self, other: &Self) -> bool;
}

/// A whole text: a verb, an API group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) Box<str>);

impl Pattern for Word {
    type Asked<'a> = &'a str;

    fn parse(text: &str) -> Self {
        Self(text.into())
    }

    fn matches(&self, asked: &str) -> bool {
        *self.0 == *asked
    }

    fn covers(&self, other: &Self) -> bool {
        self == other
    }

    fn overlaps(&self, other: &Self) -> bool {
        self == other
    }
}

/// A text, or with `*` at its end what it begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextPattern {
    /// The whole text.
    Exact(Box<str>),
    /// What it begins with.
    Prefix(Box<str>),
}

impl TextPattern {
    /// The text, without the `*` at its end.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Prefix(text) => text,
        }
    }
}

impl Pattern for TextPattern {
    type Asked<'a> = &'a str;

    fn parse(text: &str) -> Self {
        match text.ends_with('*') {
            true => Self::Prefix(text.trim_end_matches('*').into()),
            false => Self::Exact(text.into()),
        }
    }

    fn matches(&self, asked: &str) -> bool {
        match self {
            Self::Exact(text) => **text == *asked,
            Self::Prefix(prefix) => asked.starts_with(&**prefix),
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

/// A ServiceAccount, `NAMESPACE/NAME` or `NAMESPACE/*`, as what its user's name says: `NAMESPACE:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceAccountPattern(pub(crate) TextPattern);

impl Pattern for ServiceAccountPattern {
    type Asked<'a> = &'a str;

    fn parse(text: &str) -> Self {
        Self(TextPattern::parse(&text.replacen('/', ":", 1)))
    }

    fn matches(&self, asked: &str) -> bool {
        self.0.matches(asked)
    }

    fn covers(&self, other: &Self) -> bool {
        self.0.covers(&other.0)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.0.overlaps(&other.0)
    }
}

/// `pods`, `pods/status` or `*/status`. A subresource is another thing than its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourcePattern {
    /// The resource; `None` for all.
    pub(crate) resource: Option<Box<str>>,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: Box<str>,
}

impl Pattern for ResourcePattern {
    /// The resource and the subresource.
    type Asked<'a> = (&'a str, &'a str);

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
