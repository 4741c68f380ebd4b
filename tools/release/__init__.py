"""What a release is made of: `make release`, .github/workflows/release.yml and docs/releasing.md.

    python -m tools.release check TAG       that every file states the tag's version
    python -m tools.release notes TAG       the version's section of CHANGELOG.md
    python -m tools.release build           all that is published, in dist/

A tag is `v` and a version, such as `v0.2.0` or `v0.2.0rc1`. Nothing here publishes anything.
"""
