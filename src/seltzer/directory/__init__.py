"""The only code that talks to a directory (LDAP, Active Directory). It reads all users and groups, or fails."""
