package sharing

// Inside keeps methods of public packages inside the module: nobody else can name it.
type Inside struct{}
