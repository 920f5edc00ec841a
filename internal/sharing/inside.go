package sharing

import (
	"time"

	"github.com/warmroute/router/internal/peering"
)

// inside is a Node as the packages of the module use it.
type inside struct{ *Node }

var _ peering.Node = inside{}

// Inside returns n as the packages of the module use it.
func (n *Node) Inside() peering.Node { return inside{n} }

func (n inside) Chain(scope, text string) peering.Chain { return n.Node.Chain(scope, text) }

func (n inside) Extend(c peering.Chain, text, more string) peering.Chain {
	if longer := n.Node.Extend(c.(*Chain), text, more); longer != nil {
		return longer
	}
	return nil
}

func (n inside) Match(c peering.Chain, ids []string, held []int, many int) (shared int) {
	return n.Node.Match(c.(*Chain), ids, held, many)
}

func (n inside) Recent(c peering.Chain, ids []string, held []int, age time.Duration) {
	n.Node.Recent(c.(*Chain), ids, held, age)
}

func (n inside) Sent(id string, c peering.Chain)   { n.Node.Sent(id, c.(*Chain)) }
func (n inside) Unsent(id string, c peering.Chain) { n.Node.Unsent(id, c.(*Chain)) }

func (n inside) More(id string, c peering.Chain) {
	if c != nil {
		n.Node.More(id, c.(*Chain))
	}
}

func (n inside) Known(c peering.Chain) (held int, age time.Duration) { return n.Node.Known(c.(*Chain)) }

func (n inside) Local(id string) peering.Local { return n.Node.Local(id) }

func (n inside) Sum(id string) peering.Sum {
	if s := n.Node.Sum(id); s != nil {
		return s
	}
	return nil
}
