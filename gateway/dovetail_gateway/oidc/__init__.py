"""Single sign-on: the authorization code flow of OpenID Connect with one provider, and the renewal of its tokens."""
