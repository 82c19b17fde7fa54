// Package lint keeps rules about the tree that no general linter knows: how long
// functions and files may be, that exported names are documented, that there is as
// much test as code, and a few words and habits that stay out.
//
// Its test loads the whole tree, every module of it, and prints the worst ten
// functions and files. Each check is also tested on small sources that break it,
// since a check that cannot fail is worth nothing.
package lint
